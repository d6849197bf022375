const assert = require("node:assert");
const { after, before, test } = require("node:test");
const { Kafka, logLevel } = require("kafkajs");
const { KafkaKit } = require("./kit.js");

let kit;
before(async () => {
  kit = await KafkaKit.start("--brokers", "3");
});
after(() => kit.stop());

async function send(topic, ...values) {
  const kafka = new Kafka({ brokers: kit.brokers, logLevel: logLevel.NOTHING });
  const producer = kafka.producer({ idempotent: true });
  await producer.connect();
  await producer.send({ topic, messages: values.map((value) => ({ value })) });
  await producer.disconnect();
}

test("an order is written", async () => {
  await kit.call("topic", { name: "orders" });
  await send("orders", "paid");
  await kit.call("assert_records", { topic: "orders", expected: ["paid"] });
});

test("orders survive the death of a leader, and a refused request", async () => {
  await kit.call("topic", { name: "safe" });
  await kit.call("fail_next", { api: "Produce", error: "NOT_LEADER_OR_FOLLOWER" });
  await send("safe", "one");
  const leader = await kit.call("leader", { topic: "safe" });
  await kit.call("kill", { broker: leader });
  await kit.call("wait_for", { verb: "leader", arguments: { topic: "safe" }, differs: leader });
  await send("safe", "two");
  await kit.call("start", { broker: leader });
  await kit.call("assert_exactly_once", { topic: "safe", expected: ["one", "two"] });
});

test("a failed assertion says what is missing", async () => {
  await kit.call("topic", { name: "empty" });
  await assert.rejects(
    kit.call("assert_records", { topic: "empty", expected: ["paid"], timeout_s: 0.1 }),
    /missing: 'paid'/,
  );
});
