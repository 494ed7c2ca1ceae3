// Peer: pi-ai on Node, its chat-completions API behind its `Models`, retries off. A worker of its own, with
// the protocol of worker.py: one JSON line per run (`measure`, `endpoint`, `params`), one for its result. The
// harness gives the text to `node --eval` in the folder where the package is installed, so that it is found.

import { createInterface } from "node:readline";
import { createModels, createProvider } from "@earendil-works/pi-ai";
import { openAICompletionsApi } from "@earendil-works/pi-ai/api/openai-completions.lazy";

const TOKENS = [" token", " other"]; // as in provider/wires.py
const PROMPT = "Say a few tokens."; // as in drivers/__init__.py
const WARM_UPS = 5; // V8 compiles what it has seen often: a first answer costs three times as much

function openClient(url) {
  const models = createModels();
  const api = openAICompletionsApi();
  const auth = { apiKey: { name: "bench", resolve: async () => ({ auth: { apiKey: "sk-bench" } }) } };
  models.setProvider(createProvider({ id: "bench", name: "bench", baseUrl: url, auth, models: [], api }));
  return async function consume(scenario, seen) {
    const model = {
      id: scenario,
      name: scenario,
      api: "openai-completions",
      provider: "bench",
      baseUrl: url,
      reasoning: false,
      input: ["text"],
      cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 },
      contextWindow: 1_000_000,
      maxTokens: 100_000,
    };
    const context = { messages: [{ role: "user", content: PROMPT, timestamp: 0 }] };
    for await (const event of models.stream(model, context, { maxRetries: 0 })) {
      if (event.type === "text_delta") seen(event.delta);
      else if (event.type === "error") throw new Error(event.error.errorMessage);
    }
  };
}

function cpuMicroseconds() {
  const { user, system } = process.cpuUsage();
  return user + system;
}

// See measures/throughput.py.
async function throughput(consume, { kind, events, interval = 0 }) {
  for (let i = 0; i < 3; i++) await consume("tiny", () => {});
  const pieces = [];
  const cpu = cpuMicroseconds();
  const began = performance.now();
  await consume(`${kind},events=${events},interval=${interval.toFixed(6)}`, (piece) => pieces.push(piece));
  const us = (cpuMicroseconds() - cpu) / events;
  const wall = performance.now() - began;
  const wanted = Array.from({ length: events }, (_, i) => TOKENS[i % TOKENS.length]).join("");
  if (pieces.join("") !== wanted) throw new Error(`the answer is not the one of ${events} events`);
  return { us, wall_us: (wall * 1e3) / events, pieces_per_event: pieces.length / events };
}

// See measures/requests.py.
async function requests(consume, { requests }) {
  for (let i = 0; i < 5; i++) await consume("tiny", () => {});
  let pieces = 0;
  const cpu = cpuMicroseconds();
  for (let i = 0; i < requests; i++) await consume("tiny", () => pieces++);
  const us = (cpuMicroseconds() - cpu) / requests;
  if (pieces !== requests) throw new Error(`${pieces} events came of ${requests}`);
  return { us };
}

const MEASURES = { throughput, requests };

let warmUps = WARM_UPS;
for await (const line of createInterface({ input: process.stdin })) {
  const { measure, endpoint, params } = JSON.parse(line);
  let answer;
  try {
    const consume = openClient(`http://127.0.0.1:${endpoint.plain}/v1`);
    for (; warmUps; warmUps--) await consume("burst,events=10000", () => {});
    answer = { result: await MEASURES[measure](consume, params) };
  } catch (error) {
    answer = { error: String(error), traceback: error.stack ?? "" };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
}
