// kafkajs: the client program, driven by a plan; see rounds.py. NODE_PATH has the packages.
"use strict";

const fs = require("fs");
const { CompressionCodecs, CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = require("kafkajs");
const SnappyCodec = require("kafkajs-snappy");
const lz4 = require("lz4js");
const { hash: xxh32 } = require("lz4js/xxh32");
const { ZstdCodec } = require("zstd-codec");

const bytes = (text) => (text === null ? null : Buffer.from(text, "base64"));
const text = (data) => (data === null || data === undefined ? null : Buffer.from(data).toString("base64"));
const ACKS = { 0: 0, 1: 1, all: -1 };

async function codecs() {
  const zstd = await new Promise((resolve) => ZstdCodec.run(resolve));
  const simple = new zstd.Simple();
  CompressionCodecs[CompressionTypes.Snappy] = SnappyCodec;
  CompressionCodecs[CompressionTypes.LZ4] = () => ({
    compress: async (encoder) => independent(lz4.compress(encoder.buffer)),
    decompress: async (buffer) => Buffer.from(lz4.decompress(buffer)),
  });
  CompressionCodecs[CompressionTypes.ZSTD] = () => ({
    compress: async (encoder) => Buffer.from(simple.compress(encoder.buffer)),
    decompress: async (buffer) => Buffer.from(simple.decompress(buffer)),
  });
}

// Java refuses frames of dependent blocks, which is what lz4js declares. Up to 4 MiB there is
// only one block and it depends on nothing: the flag can say so.
function independent(frame) {
  frame[4] |= 0x20;
  frame[6] = xxh32(0, frame, 4, 2) >> 8;
  return Buffer.from(frame);
}

// How round trips connect; see rounds.py.
function secured({ protocol, mechanism, user, password, token, ca, certificate }) {
  const read = (file) => file && fs.readFileSync(file, "utf8");
  const mechanisms = {
    PLAIN: { mechanism: "plain", username: user, password },
    "SCRAM-SHA-256": { mechanism: "scram-sha-256", username: user, password },
    "SCRAM-SHA-512": { mechanism: "scram-sha-512", username: user, password },
    OAUTHBEARER: { mechanism: "oauthbearer", oauthBearerProvider: async () => ({ value: read(token) }) },
  };
  return {
    ssl: protocol.endsWith("SSL") ? { ca: [read(ca)], cert: read(certificate), key: read(certificate) } : false,
    sasl: protocol.startsWith("SASL") ? mechanisms[mechanism] : undefined,
  };
}

async function roundTrip(kafka, asked) {
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({
    topics: [{ topic: asked.topic, numPartitions: asked.partitions, replicationFactor: 1 }],
  });
  const sent = await produce(kafka, asked);
  const read = await consume(kafka, asked);
  const ends = {};
  for (const { partition, high } of await admin.fetchTopicOffsets(asked.topic)) ends[partition] = Number(high);
  await admin.disconnect();
  return { topic: asked.topic, sent, read, ends };
}

async function produce(kafka, asked) {
  const producer = kafka.producer({ idempotent: asked.idempotent, maxInFlightRequests: 1 });
  await producer.connect();
  const type = { none: 0, gzip: 1, snappy: 2, lz4: 3, zstd: 4 }[asked.codec];
  const sent = [];
  const next = {};
  // send() batches what it is given, so give it several records at a time.
  for (let at = 0; at < asked.records.length; at += 20) {
    const some = asked.records.slice(at, at + 20);
    const answers = await producer.send({
      topic: asked.topic,
      acks: ACKS[asked.acks],
      compression: type,
      messages: some.map((r) => ({
        partition: r.partition,
        timestamp: String(r.timestamp),
        key: bytes(r.key),
        value: bytes(r.value),
        headers: headers(r.headers),
      })),
    });
    for (const { partition, baseOffset } of answers || []) next[partition] = Number(baseOffset);
    for (const r of some) sent.push([r.partition, asked.acks === "0" ? null : next[r.partition]++]);
  }
  await producer.disconnect();
  return sent;
}

// A header is a property here, so one that comes twice is a list.
function headers(pairs) {
  const all = {};
  for (const [name, value] of pairs) {
    if (name in all) all[name] = [].concat(all[name], [bytes(value)]);
    else all[name] = bytes(value);
  }
  return all;
}

// kafkajs has no consumer outside a group, so this reads as its own runner does, from the
// brokers of its cluster, which a Kafka object makes under a private symbol.
async function consume(kafka, asked) {
  const symbol = Object.getOwnPropertySymbols(kafka).find((s) => String(s).includes("createCluster"));
  const cluster = kafka[symbol]({ isolationLevel: 0 });
  await cluster.connect();
  await cluster.addTargetTopic(asked.topic);
  const next = Array.from({ length: asked.partitions }, () => 0);
  const read = [];
  const deadline = Date.now() + 30000;
  while (read.length < asked.records.length && Date.now() < deadline) {
    const leaders = cluster.findLeaderForPartitions(asked.topic, [...next.keys()]);
    for (const [nodeId, partitions] of Object.entries(leaders)) {
      const broker = await cluster.findBroker({ nodeId });
      const wanted = partitions.map((p) => ({ partition: p, fetchOffset: String(next[p]), maxBytes: 1048576 }));
      const topics = [{ topic: asked.topic, partitions: wanted }];
      const answer = await broker.fetch({ replicaId: -1, isolationLevel: 0, maxWaitTime: 500, topics });
      for (const { partition, messages } of answer.responses.flatMap((r) => r.partitions)) {
        // A batch comes whole, also when the offset asked for lies within it.
        for (const m of messages.filter((m) => Number(m.offset) >= next[partition])) {
          read.push(seen(partition, m));
          next[partition] = Number(m.offset) + 1;
        }
      }
    }
  }
  await cluster.disconnect();
  return read;
}

function seen(partition, m) {
  const pairs = Object.entries(m.headers).flatMap(([name, value]) => [].concat(value).map((v) => [name, text(v)]));
  return {
    partition,
    offset: Number(m.offset),
    timestamp: Number(m.timestamp),
    key: text(m.key),
    value: text(m.value),
    headers: pairs,
  };
}

async function administer(kafka, plan) {
  const { topic } = plan;
  const admin = kafka.admin();
  await admin.connect();
  const partitions = async () => (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length;
  const listed = async () => (await admin.listTopics()).includes(topic);
  const retention = async () => {
    const asked = { type: ConfigResourceTypes.TOPIC, name: topic, configNames: ["retention.ms"] };
    const { resources } = await admin.describeConfigs({ includeSynonyms: false, resources: [asked] });
    return resources[0].configEntries[0].configValue;
  };
  const first = async () => (await admin.fetchTopicOffsets(topic)).find(({ partition }) => partition === 0);
  const setting = (value) => [{ name: "retention.ms", value }];
  const created = { topic, numPartitions: plan.partitions, replicationFactor: 1 };
  await admin.createTopics({ topics: [{ ...created, configEntries: setting(plan.retention) }] });
  const report = {
    brokers: (await admin.describeCluster()).brokers.map(({ nodeId }) => nodeId),
    created: await until(plan.partitions, partitions),
    config: await retention(),
    listed: await until(true, listed),
  };
  const changed = { type: ConfigResourceTypes.TOPIC, name: topic, configEntries: setting(plan.altered) };
  await admin.alterConfigs({ validateOnly: false, resources: [changed] });
  report.altered = await until(plan.altered, retention);
  await admin.createPartitions({ topicPartitions: [{ topic, count: plan.extended }] });
  report.extended = await until(plan.extended, partitions);
  const producer = kafka.producer();
  await producer.connect();
  const messages = plan.timestamps.map((t) => ({ partition: 0, timestamp: String(t), value: "value" }));
  await producer.send({ topic, messages });
  await producer.disconnect();
  const found = await admin.fetchTopicOffsetsByTimestamp(topic, plan.lookup);
  report.offset_at = Number(found.find(({ partition }) => partition === 0).offset);
  await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: String(plan.delete_before) }] });
  report.earliest = await until(plan.delete_before, async () => Number((await first()).low));
  report.latest = Number((await first()).high);
  await admin.deleteTopics({ topics: [topic] });
  report.listed_after = await until(false, listed);
  await admin.disconnect();
  return report;
}

// The first and the next offset of each partition, by each version of ListOffsets that kafkajs has.
async function listOffsets(kafka, { topic, partitions }) {
  const symbol = Object.getOwnPropertySymbols(kafka).find((s) => String(s).includes("createCluster"));
  const cluster = kafka[symbol]({ isolationLevel: 0 });
  await cluster.connect();
  await cluster.addTargetTopic(topic);
  const offsets = {};
  for (const version of [0, 1, 2, 3]) {
    const found = [];
    for (let partition = 0; partition < partitions; partition++) {
      const [nodeId] = Object.keys(cluster.findLeaderForPartitions(topic, [partition]));
      const broker = await cluster.findBroker({ nodeId });
      broker.lookupRequest = (_, definition) => definition.protocol({ version });
      const both = [];
      for (const timestamp of [-2, -1]) {
        const topics = [{ topic, partitions: [{ partition, timestamp }] }];
        const { responses } = await broker.listOffsets({ isolationLevel: 0, topics });
        both.push(Number(responses[0].partitions[0].offset));
      }
      found.push(both);
    }
    offsets[version] = found;
  }
  await cluster.disconnect();
  return { offsets };
}

// A member of a group: what it holds and has read is counted.
async function member(kafka, plan) {
  const consumer = kafka.consumer({ groupId: plan.group, heartbeatInterval: 300 });
  const counts = { consumer, held: 0, read: 0 };
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    counts.held = (payload.memberAssignment[plan.topic] || []).length;
  });
  await consumer.connect();
  await consumer.subscribe({ topics: [plan.topic], fromBeginning: true });
  await consumer.run({ autoCommit: true, eachMessage: async () => void counts.read++ });
  return counts;
}

async function group(kafka, plan) {
  const half = plan.partitions / 2;
  const first = await member(kafka, plan);
  const report = { read: await until(plan.records, async () => first.read) };
  const second = await member(kafka, plan); // what is read is committed before a rebalance
  const shared = await until(`${half} ${half}`, async () => `${first.held} ${second.held}`);
  report.shared = shared.split(" ").map(Number);
  await second.consumer.disconnect();
  report.alone = await until(plan.partitions, async () => first.held);
  await first.consumer.disconnect();
  const third = await member(kafka, plan);
  await until(plan.partitions, async () => third.held);
  await new Promise((resolve) => setTimeout(resolve, 300));
  report.again = third.read;
  await third.consumer.disconnect();
  const admin = kafka.admin();
  await admin.connect();
  report.committed = {};
  const [offsets] = await admin.fetchOffsets({ groupId: plan.group, topics: [plan.topic] });
  for (const { partition, offset } of offsets.partitions) report.committed[partition] = Number(offset);
  await admin.disconnect();
  return report;
}

async function transact(kafka, plan) {
  const admin = kafka.admin();
  await admin.connect();
  const topic = (name) => ({ topic: name, numPartitions: 1, replicationFactor: 1 });
  await admin.createTopics({ topics: [topic(plan.in), topic(plan.out)] });
  const plain = kafka.producer();
  await plain.connect();
  const write = (to, name, values) =>
    to.send({ topic: name, messages: values.map((value) => ({ value, partition: 0 })) });
  // A record outside of transactions marks how far to read.
  const read = async (readUncommitted) => {
    const end = `end of ${readUncommitted}`;
    await write(plain, plan.out, [end]);
    const values = await valuesUntil(kafka, plan, readUncommitted, (all) => all.includes(end));
    return values.filter((value) => !value.startsWith("end of "));
  };
  const producer = await transactor(kafka, plan);
  let transaction = await producer.transaction();
  await write(transaction, plan.out, plan.first);
  await transaction.commit();
  transaction = await producer.transaction();
  await write(transaction, plan.out, plan.lost);
  await transaction.abort();
  await write(plain, plan.in, plan.records);
  const members = { ...plan, out: plan.in, id: plan.group };
  const values = await valuesUntil(kafka, members, true, (all) => all.length === plan.records.length);
  const position = (offset) => ({
    consumerGroupId: plan.group,
    topics: [{ topic: plan.in, partitions: [{ partition: 0, offset }] }],
  });
  transaction = await producer.transaction();
  await write(transaction, plan.out, values.map((value) => `${value}+`));
  await transaction.sendOffsets(position(String(values.length)));
  await transaction.commit();
  transaction = await producer.transaction();
  await write(transaction, plan.out, plan.lost);
  await transaction.sendOffsets(position("0"));
  await transaction.abort();
  const committed = async () => {
    const [found] = await admin.fetchOffsets({ groupId: plan.group, topics: [plan.in] });
    return Number(found.partitions[0].offset);
  };
  const report = { position: await until(values.length, committed), all: (await read(true)).length };
  transaction = await producer.transaction();
  await write(transaction, plan.out, [plan.fenced]);
  await (await transactor(kafka, plan)).transaction();
  report.fenced = await transaction.commit().then(
    () => false,
    (error) => ["INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED"].includes(error.type),
  );
  report.committed = await read(false);
  await plain.disconnect();
  await admin.disconnect();
  return report;
}

async function transactor(kafka, plan) {
  const producer = kafka.producer({ transactionalId: plan.id, idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  return producer;
}

// What a group of its own reads, until that is enough.
async function valuesUntil(kafka, plan, readUncommitted, enough) {
  const consumer = kafka.consumer({ groupId: `${plan.id}-${readUncommitted}`, readUncommitted });
  const values = [];
  await consumer.connect();
  await consumer.subscribe({ topics: [plan.out], fromBeginning: true });
  await consumer.run({ autoCommit: false, eachMessage: async ({ message }) => void values.push(String(message.value)) });
  await until(true, async () => enough(values));
  await consumer.disconnect();
  return values;
}

async function until(wanted, look) {
  const deadline = Date.now() + 30000;
  for (;;) {
    const seen = await look();
    if (seen === wanted || Date.now() > deadline) return seen;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

async function roundTrips(kafka, plan) {
  const rounds = [];
  for (const asked of plan.rounds) rounds.push(await roundTrip(kafka, asked));
  return { rounds };
}

async function main() {
  const [bootstrap, scenario, file, security] = process.argv.slice(2);
  const plan = JSON.parse(fs.readFileSync(file));
  await codecs();
  const kafka = new Kafka({
    clientId: "kafkajs",
    brokers: bootstrap.split(","),
    logLevel: logLevel.ERROR,
    ...(security ? secured(JSON.parse(fs.readFileSync(security))) : {}),
  });
  const scenarios = { round_trips: roundTrips, administer, group, transact, list_offsets: listOffsets };
  const client = `kafkajs ${require("kafkajs/package.json").version}`;
  const report = { client, ...(await scenarios[scenario](kafka, plan)) };
  // Awaited, for process.exit() does not wait for a pipe.
  await new Promise((resolve) => process.stdout.write(JSON.stringify(report) + "\n", resolve));
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
