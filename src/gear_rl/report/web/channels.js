// What a token can be coloured by. A channel gives each token a value, and each value a size from 0 to 1 and a tone:
// "plus" and "minus" for praise and blame, "more" and "less" for amounts. Scales are the same all over the page.

const scaleOf = (name) => index.scales[name]?.[0] ?? 1;

const twoSided = (top) => (v) => ({ size: Math.min(1, Math.abs(v) / top), tone: v < 0 ? "minus" : "plus" });
const oneSided = (top) => (v) => ({ size: Math.min(1, Math.max(0, v) / top), tone: "more" });
// Halving and doubling weigh the same; a weight of 1 is what GRPO gives, and shows as nothing.
const aroundOne = (top) => (v) => {
  const log = v > 0 ? Math.log2(v) : -Infinity;
  return { size: Math.min(1, Math.abs(log) / top), tone: log < 0 ? "less" : "more" };
};
const decided = (v) => ({ size: v === 0 ? 0 : 1, tone: v < 0 ? "minus" : "plus" });

const ofSignal = (name) => (rollout) => rollout.signals[name] ?? null;
const gapOf = ({ signals: { student_logprob: p, teacher_logprob: q } }) => p && q && q.map((x, i) => x - p[i]);

function signalChannel(key, name, unit, about) {
  const [top, negative] = index.scales[`signal ${key}`] ?? [1, false];
  const ends = negative ? [`−${short(top)}`, "0", `+${short(top)}`] : ["0", short(top)];
  return { key, name, unit, about, values: ofSignal(key), needs: [key], two: negative,
    level: (negative ? twoSided : oneSided)(top), ends };
}

const CHANNELS = (() => {
  const advantage = scaleOf("advantage"), weight = scaleOf("weight"), gap = scaleOf("gap");
  const fold = short(2 ** weight);
  const known = [
    { key: "advantage", name: "Advantage", about: "what the loss multiplies this token's gradient with",
      values: (r) => r.advantages, needs: [], two: true, level: twoSided(advantage),
      ends: [`−${short(advantage)}`, "0", `+${short(advantage)}`] },
    { key: "weight", name: "Weight", about: "the token's share of its rollout's advantage; 1 is even",
      values: (r) => r.weights, needs: [], two: true, level: aroundOne(weight), ends: [`1/${fold}`, "1", `${fold}×`] },
    signalChannel("reverse_kl", "Divergence", "nat", "reverse KL: how far the policy is from the teacher that saw the hint"),
    signalChannel("entropy", "Entropy", "nat", "how undecided the policy was"),
    { key: "gap", name: "Teacher gap", about: "log q − log p of the sampled token: what the teacher thinks of it",
      unit: "nat", values: gapOf, needs: ["student_logprob", "teacher_logprob"], two: true, level: twoSided(gap),
      ends: [`−${short(gap)}`, "0", `+${short(gap)}`] },
    { key: "decision", name: "Decision", about: "what the task knows: right or wrong", values: ofSignal("decision"),
      needs: ["decision"], two: true, level: decided, ends: ["wrong", "none", "right"], words: true },
  ];
  const named = new Set(["reverse_kl", "entropy", "student_logprob", "teacher_logprob", "decision"]);
  const others = Object.keys(index.scales).filter((s) => s.startsWith("signal ")).map((s) => s.slice(7));
  return [...known, ...others.filter((key) => !named.has(key)).map((key) => signalChannel(key, key, "", "a signal of this record"))];
})();

const channelOf = (key) => CHANNELS.find((channel) => channel.key === key) ?? CHANNELS[0];

// Why a channel shows nothing in any run; empty where at least one has it.
function whyMissing(channel) {
  const reasons = index.runs.map((run) =>
    channel.needs.map((name) => run.missing[name]).find((why) => why && !/^\d/.test(why)));
  return reasons.every(Boolean) ? reasons[0] : "";
}

const decisionWord = (v) => (v > 0 ? "right" : v < 0 ? "wrong" : "none");

// Every value of token i that its rollout has, for the card that explains a token.
function valuesAt(rollout, i) {
  const signal = (name) => rollout.signals[name]?.[i];
  const p = signal("student_logprob"), q = signal("teacher_logprob");
  const rows = [
    ["advantage", rollout.advantages[i]], ["weight", rollout.weights[i]],
    ["divergence", signal("reverse_kl"), "nat"], ["entropy", signal("entropy"), "nat"],
    ["log p, policy", p, "nat"], ["log q, teacher", q, "nat"],
    ["log q − log p", p === undefined || q === undefined ? undefined : q - p, "nat"],
  ];
  const named = new Set(["reverse_kl", "entropy", "student_logprob", "teacher_logprob", "decision"]);
  for (const name of Object.keys(rollout.signals)) if (!named.has(name)) rows.push([name, signal(name)]);
  const values = rows.filter(([, v]) => v !== undefined && !Number.isNaN(v)).map(([name, v, unit]) => [name, exact(v), unit]);
  const decision = signal("decision");
  if (decision !== undefined && !Number.isNaN(decision)) values.push(["decision", decisionWord(decision)]);
  return values;
}
