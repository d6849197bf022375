// How long kafkajs's producer gets no acknowledgement: its own defaults, a record every 3 ms.
//
//     node outage.js BOOTSTRAP TOPIC PARTITION,PARTITION...
//
// It prints `ready` when all partitions have been written to, continues until its standard input
// ends, and then prints one line of JSON: the longest time between two acknowledgements, of each
// partition.
"use strict";

const { Kafka, logLevel } = require("kafkajs");

async function main(bootstrap, topic, partitions) {
  const kafka = new Kafka({ brokers: bootstrap.split(","), logLevel: logLevel.NOTHING });
  const producer = kafka.producer();
  await producer.connect();
  let over = false;
  process.stdin.on("end", () => (over = true)).resume();
  const last = {};
  let longest = {};
  const acknowledged = (partition) => {
    const now = performance.now();
    if (last[partition] !== undefined) {
      longest[partition] = Math.max(longest[partition] || 0, now - last[partition]);
    }
    last[partition] = now;
  };
  const value = Buffer.alloc(100);
  let isReady = false;
  while (!over) {
    for (const partition of partitions) {
      // A record that all its attempts could not deliver is not acknowledged.
      producer.send({ topic, messages: [{ value, partition }] }).then(() => acknowledged(partition), () => {});
    }
    await new Promise((resolve) => setTimeout(resolve, 3));
    if (!isReady && Object.keys(last).length === partitions.length) {
      isReady = true;
      longest = {}; // the first requests include the start
      console.log("ready");
    }
  }
  for (const partition of partitions) acknowledged(partition); // one that never recovered
  console.log(JSON.stringify({ gaps_ms: longest }));
  process.exit(0);
}

const [bootstrap, topic, partitions] = process.argv.slice(2);
main(bootstrap, topic, partitions.split(",").map(Number));
