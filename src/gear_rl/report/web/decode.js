// The other half of packing.py: token data lies in the page as base64 of raw deflate, and is decoded when first shown.

const index = JSON.parse(byId("index").textContent);
const severalRuns = index.runs.length > 1;

// This script stands before the data, so that the page shows itself while the data is still being read.
const dataRead = new Promise((done) => document.addEventListener("DOMContentLoaded", done, { once: true }));
// What the page opens with stands before this script, and needs no waiting.
const early = byId("early").textContent;
let rest = null;

async function base64Of(number) {
  const start = index.offsets[number], end = index.offsets[number + 1];
  if (end <= early.length) return early.slice(start, end);
  await dataRead;
  rest ??= byId("blobs").textContent;
  return rest.slice(start - early.length, end - early.length);
}

async function inflate(number) {
  const binary = atob(await base64Of(number));
  const bytes = Uint8Array.from(binary, (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

const inflateTexts = async (number) => JSON.parse(new TextDecoder().decode(await inflate(number)));

class Columns {
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }
  take(n) {
    this.at += n;
    return this.bytes.subarray(this.at - n, this.at);
  }
  words(n) {
    const planes = this.take(4 * n);
    const words = new Uint32Array(n);
    for (let i = 0; i < n; i++)
      words[i] = planes[i] | (planes[n + i] << 8) | (planes[2 * n + i] << 16) | (planes[3 * n + i] << 24);
    return words;
  }
  wholeNumbers(n) {
    const values = new Int32Array(this.words(n).buffer);
    for (let i = 1; i < n; i++) values[i] += values[i - 1];
    return values;
  }
  // Floats exist at sampled tokens only; elsewhere the result is NaN.
  floats(sampled) {
    const packed = new Float32Array(this.words(sampled.count).map((word) => word << 3).buffer);
    const values = new Float32Array(sampled.mask.length).fill(NaN);
    for (let i = 0, k = 0; i < values.length; i++) if (sampled.mask[i]) values[i] = packed[k++];
    return values;
  }
}

async function decodeRollout(facts) {
  const [, textBlob, tokenBlob, signalBlob, creditBlob] = facts.blobs;
  const [texts, ...bytes] = await Promise.all(
    [inflateTexts(textBlob), inflate(tokenBlob), inflate(signalBlob), inflate(creditBlob)]);
  const [tokens, signals, credit] = bytes.map((b) => new Columns(b));
  const n = facts.tokens;
  const ids = tokens.wholeNumbers(n), mask = tokens.take(n), turns = tokens.wholeNumbers(n);
  const sampled = { mask, count: facts.actions };
  return {
    n, texts, ids, mask, turns,
    signals: Object.fromEntries(facts.signals.map((name) => [name, signals.floats(sampled)])),
    segments: credit.wholeNumbers(n), onsets: credit.take(n),
    weights: credit.floats(sampled), advantages: credit.floats(sampled),
  };
}

// The newest few dozen stay decoded: going back to a group is immediate, and memory stays bounded.
const decoded = new Map();
function rolloutOf(facts) {
  const key = facts.blobs.join();
  const known = decoded.get(key) ?? decodeRollout(facts);
  decoded.delete(key);
  decoded.set(key, known);
  if (decoded.size > 96) decoded.delete(decoded.keys().next().value);
  return known;
}

const DAMAGED = "This part of the file is damaged or cut off: make the report again, or copy the file again.";
const promptsOf = (facts) => inflateTexts(facts.blobs[0]);
