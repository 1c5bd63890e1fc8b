// The AI SDK's OpenAI provider, which asks /v1/responses, against a running server:
//
//     npm install --prefix "$HOME/.cache/ropeway/ai-sdk" ai@6 @ai-sdk/openai@3 zod
//     ropeway serve &
//     tests/clients/ai_sdk/run.sh http://127.0.0.1:8000
//
// Prints one line per check; the exit code says whether all of them passed. The protocol is checked, not the model's wit.
import assert from 'node:assert/strict';
import { createOpenAI } from '@ai-sdk/openai';
import { generateObject, generateText, stepCountIs, streamText, tool } from 'ai';
import { z } from 'zod';

const url = process.argv[2] ?? 'http://127.0.0.1:8000';
const openai = createOpenAI({ baseURL: `${url}/v1`, apiKey: process.argv[3] ?? 'none' });
const listed = await (await fetch(`${url}/v1/models`, { headers: { authorization: `Bearer ${process.argv[3] ?? 'none'}` } })).json();
const model = openai.responses(listed.data[0].id);
const short = { model, maxOutputTokens: 24, temperature: 0, maxRetries: 0 };

const warmth = tool({
  description: 'How warm it is in a city',
  inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => `20 degrees in ${city}`,
});

const checks = {
  async twoTurnsWithPreviousResponseId() {
    const one = await generateText({ ...short, prompt: 'My name is Ada.' });
    const id = one.providerMetadata.openai.responseId;
    assert.match(id, /^resp_/);
    const two = await generateText({
      ...short,
      prompt: 'What is my name?',
      providerOptions: { openai: { previousResponseId: id } },
    });
    assert.ok(two.usage.inputTokens > one.usage.inputTokens);
  },

  // With store, which is the default, the SDK sends the first answer back as an item_reference.
  async twoTurnsWithItemReferences() {
    const messages = [{ role: 'user', content: 'My name is Ada.' }];
    const one = await generateText({ ...short, messages });
    const two = await generateText({
      ...short,
      messages: [...messages, ...one.response.messages, { role: 'user', content: 'What is my name?' }],
    });
    assert.match(JSON.stringify(two.request.body), /item_reference/);
    assert.ok(two.usage.inputTokens > one.usage.inputTokens);
  },

  async twoTurnsWithoutStore() {
    const options = { openai: { store: false, include: ['reasoning.encrypted_content'] } };
    const messages = [{ role: 'user', content: 'My name is Ada.' }];
    const one = await generateText({ ...short, messages, providerOptions: options });
    const two = await generateText({
      ...short,
      messages: [...messages, ...one.response.messages, { role: 'user', content: 'What is my name?' }],
      providerOptions: options,
    });
    assert.ok(two.usage.inputTokens > one.usage.inputTokens);
  },

  async aToolIsCalledAndAnswered() {
    const result = await generateText({
      ...short,
      maxOutputTokens: 64,
      prompt: 'How warm is it in Oslo?',
      tools: { warmth },
      toolChoice: 'required',
      stopWhen: stepCountIs(2),
    });
    assert.equal(result.steps[0].toolCalls[0].toolName, 'warmth');
    assert.match(JSON.stringify(result.steps[0].toolResults), /20 degrees/);
  },

  async aToolCallIsStreamed() {
    const kinds = [];
    const result = streamText({
      ...short,
      maxOutputTokens: 64,
      prompt: 'How warm is it in Rome?',
      tools: { warmth, search: openai.tools.webSearch() },
      toolChoice: { type: 'tool', toolName: 'warmth' },
    });
    for await (const part of result.fullStream) {
      assert.notEqual(part.type, 'error', JSON.stringify(part));
      kinds.push(part.type);
    }
    for (const kind of ['tool-input-start', 'tool-input-delta', 'tool-input-end', 'tool-call', 'tool-result', 'finish']) {
      assert.ok(kinds.includes(kind), `${kind} is not among ${kinds}`);
    }
  },

  async aTextIsStreamed() {
    const result = streamText({ ...short, prompt: 'Name three colours.' });
    let text = '';
    for await (const piece of result.textStream) text += piece;
    assert.ok(text.length > 0);
    assert.ok((await result.usage).outputTokens > 0);
  },

  async anObjectFollowsItsSchema() {
    const { object } = await generateObject({
      ...short,
      maxOutputTokens: 60,
      prompt: 'Name a colour.',
      schema: z.object({ colour: z.enum(['red', 'green']) }),
    });
    assert.ok(['red', 'green'].includes(object.colour));
  },
};

let failed = 0;
for (const [name, check] of Object.entries(checks)) {
  const began = performance.now();
  try {
    await check();
    console.log(`ok      ${name} (${((performance.now() - began) / 1000).toFixed(1)} s)`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED  ${name}`);
    console.error(error);
  }
}
process.exit(failed ? 1 : 0);
