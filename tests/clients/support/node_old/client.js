// kafka-node and no-kafka: the client program, driven by a plan; see old/rounds.py. The scenario names
// the library, and NODE_PATH has the packages.
"use strict";

const fs = require("fs");
const snappy = require("snappy");

const bytes = (text) => (text === null ? null : Buffer.from(text, "base64"));
const text = (data) => (data === null || data === undefined ? null : Buffer.from(data).toString("base64"));
const ACKS = { 0: 0, 1: 1, all: -1 };
const CODECS = { none: 0, gzip: 1, snappy: 2 };
const TIMEOUT = 30000;

// kafka-node was made for snappy 6, which had callbacks instead of promises.
for (const name of ["compress", "uncompress"]) {
  const promised = snappy[name];
  snappy[name] = (data, done) => void promised(data).then((made) => done(null, made), done);
}

const partitionsOf = (asked) => Array.from({ length: asked.partitions }, (_, p) => p);
const called = (run) => new Promise((yes, no) => run((error, found) => (error ? no(error) : yes(found))));

// Sends twenty records of a partition at a time; `send` returns the offset of the first, or null.
async function produce(asked, send) {
  const sent = asked.records.map(() => null);
  for (const p of partitionsOf(asked)) {
    const mine = asked.records.map((r, n) => ({ ...r, n })).filter((r) => r.partition === p);
    for (let at = 0; at < mine.length; at += 20) {
      const some = mine.slice(at, at + 20);
      const first = await send(p, some.map((r) => ({ key: bytes(r.key), value: bytes(r.value), timestamp: r.timestamp })));
      some.forEach((r, place) => (sent[r.n] = [p, first === null ? null : first + place]));
    }
  }
  return sent;
}

// Collects records until there are as many as are wanted, or thirty seconds are over.
function collector(read, count) {
  const next = {};
  let done;
  const finished = new Promise((resolve) => (done = resolve));
  const timer = setTimeout(() => done(), TIMEOUT);
  let left = count;
  const take = (partition, offset, timestamp, key, value) => {
    if (left === 0 || offset < (next[partition] || 0)) return;
    read.push({ partition, offset, timestamp, key: text(key), value: text(value), headers: [] });
    next[partition] = offset + 1;
    if (--left === 0) {
      clearTimeout(timer);
      done();
    }
  };
  return { take, next, finished };
}

async function withNoKafka(bootstrap, asked) {
  const Kafka = require("no-kafka");
  const { topic } = asked;
  const quiet = { connectionString: `kafka://${bootstrap}`, logger: { logLevel: 0 } };
  const producer = new Kafka.Producer({ ...quiet, requiredAcks: ACKS[asked.acks], codec: CODECS[asked.codec] });
  await producer.init();
  const sent = await produce(asked, async (partition, records) => {
    const items = records.map(({ key, value }) => ({ topic, partition, message: { key, value } }));
    const [answer] = await producer.send(items, { batch: { size: 0, maxWait: 0 } });
    if (answer && answer.error) throw answer.error;
    return asked.acks === "0" ? null : answer.offset;
  });
  await producer.end();

  const read = [];
  const partitions = partitionsOf(asked);
  const consume = async (starts, count, then) => {
    const consumer = new Kafka.SimpleConsumer({ ...quiet, groupId: asked.group, idleTimeout: 10 });
    await consumer.init();
    const offsets = starts || (await consumer.fetchOffset(partitions.map((partition) => ({ topic, partition }))));
    const { take, next, finished } = collector(read, count);
    for (const p of partitions) {
      const found = offsets.find(({ partition }) => partition === p);
      const from = found && found.offset >= 0 ? { offset: found.offset } : { time: Kafka.EARLIEST_OFFSET };
      await consumer.subscribe(topic, p, from, async (messages) => {
        for (const { offset, message } of messages) {
          if (offset >= (from.offset || 0)) take(p, offset, -1, message.key, message.value);
        }
      });
    }
    await finished;
    const result = await then(consumer, next, offsets);
    await consumer.end();
    return result;
  };
  await consume([], asked.first, (consumer, next) =>
    consumer.commitOffset(Object.entries(next).map(([p, offset]) => ({ topic, partition: Number(p), offset }))),
  );
  return consume(null, asked.total - asked.first, async (consumer, next, offsets) => {
    const committed = Object.fromEntries(offsets.map(({ partition, offset }) => [partition, offset]));
    const ends = {};
    for (const p of partitions) ends[p] = await consumer.offset(topic, p, Kafka.LATEST_OFFSET);
    return { topic, sent, read, committed, ends };
  });
}

async function withKafkaNode(bootstrap, asked) {
  const { KafkaClient, Producer, ConsumerGroup, KeyedMessage, Offset } = require("kafka-node");
  const { topic } = asked;
  const connection = { kafkaHost: bootstrap };

  const client = new KafkaClient(connection);
  await called((done) => client.once("ready", done));
  await called((done) => client.refreshMetadata([topic], done));
  const producer = new Producer(client, { requireAcks: ACKS[asked.acks], ackTimeoutMs: 10000 });
  const sent = await produce(asked, async (partition, records) => {
    const messages = records.map(({ key, value, timestamp }) => Object.assign(new KeyedMessage(key, value), { timestamp }));
    const payload = { topic, partition, messages, attributes: CODECS[asked.codec] };
    const answer = await called((done) => producer.send([payload], done));
    return asked.acks === "0" ? null : answer[topic][partition];
  });

  const read = [];
  const consume = async (count, then) => {
    const options = { ...connection, groupId: asked.group, autoCommit: false, fromOffset: "earliest", fetchMaxWaitMs: 100 };
    const consumer = new ConsumerGroup({ ...options, encoding: "buffer", keyEncoding: "buffer" }, [topic]);
    const { take, next, finished } = collector(read, count);
    consumer.on("error", (error) => console.error(error));
    consumer.on("message", (m) => {
      const timestamp = m.timestamp === undefined ? -1 : m.timestamp.getTime();
      take(m.partition, m.offset, timestamp, m.key, m.value);
    });
    await finished;
    const result = await then(consumer, next);
    await called((done) => consumer.close(done));
    return result;
  };
  await consume(asked.first, (consumer, next) => {
    const offsets = Object.entries(next).map(([p, offset]) => ({ topic, partition: Number(p), offset, metadata: "" }));
    return called((done) => consumer.sendOffsetCommitRequest(offsets, done));
  });
  const offset = new Offset(client);
  const committed = await consume(asked.total - asked.first, () => ({}));
  const payload = partitionsOf(asked).map((partition) => ({ topic, partition }));
  Object.assign(committed, (await called((done) => offset.fetchCommitsV1(asked.group, payload, done)))[topic]);
  const ends = (await called((done) => offset.fetchLatestOffsets([topic], done)))[topic];
  await called((done) => client.close(done));
  return { topic, sent, read, committed, ends };
}

const SCENARIOS = {
  no_kafka: withNoKafka,
  kafka_node: withKafkaNode,
};

async function main() {
  const [bootstrap, scenario, file] = process.argv.slice(2);
  const rounds = [];
  for (const asked of JSON.parse(fs.readFileSync(file)).rounds) rounds.push(await SCENARIOS[scenario](bootstrap, asked));
  // Awaited, for process.exit() does not wait for a pipe.
  const report = JSON.stringify({ client: scenario, rounds });
  await new Promise((resolve) => process.stdout.write(report + "\n", resolve));
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
