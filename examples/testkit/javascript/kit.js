// A cluster of Odradek for tests: starts `odradek testkit` and calls its verbs over HTTP.
//
//   const kafka = await KafkaKit.start("--brokers", "3");
//   await kafka.call("kill", { broker: 1 });
//   await kafka.stop();

const { spawn } = require("node:child_process");
const { once } = require("node:events");
const readline = require("node:readline");

class KafkaKit {
  /** Start a cluster; when this resolves, its brokers serve. */
  static async start(...options) {
    const program = process.env.ODRADEK || "odradek";
    const kit = new KafkaKit();
    // Its standard input is closed with this process, which ends it.
    kit.process = spawn(program, ["testkit", "--until-eof", ...options], {
      stdio: ["pipe", "pipe", "inherit"],
    });
    const lines = readline.createInterface({ input: kit.process.stdout });
    const ended = once(kit.process, "exit").then(() => {
      throw new Error("odradek testkit ended while it was starting");
    });
    const [line] = await Promise.race([once(lines, "line"), ended]);
    ended.catch(() => {});
    Object.assign(kit, JSON.parse(line)); // url and bootstrap
    return kit;
  }

  get brokers() {
    return this.bootstrap.split(",");
  }

  /** Call a verb; what it returns. A failed assertion is thrown with its text. */
  async call(verb, args = {}) {
    const response = await fetch(`${this.url}/${verb}`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(args),
    });
    const answer = await response.json();
    if (!response.ok) throw new Error(`${verb}: ${answer.failed || answer.error}`);
    return answer.result;
  }

  /** End the cluster; nothing of it is left. */
  async stop() {
    const ended = once(this.process, "exit");
    this.process.stdin.end();
    await ended;
  }
}

module.exports = { KafkaKit };
