// The official `ollama` library for JavaScript against a running server: node conformance.mjs URL MODEL EMBEDDER
import assert from 'node:assert/strict'
import { Ollama } from 'ollama'

const [url, MODEL, EMBEDDER] = process.argv.slice(2)
const client = new Ollama({ host: url })
const COLOURS = [{ role: 'user', content: 'Name three colours.' }]

const collect = async (stream) => {
  const parts = []
  for await (const part of stream) parts.push(part)
  return parts
}

const fails = async (status, call) => {
  await assert.rejects(call, (error) => {
    assert.equal(error.status_code, status, error.message)
    return Boolean(error.message)
  })
}

const CHECKS = {
  async chat() {
    const whole = await client.chat({ model: MODEL, messages: COLOURS, options: { num_predict: 6, num_ctx: 1000000 } })
    assert.ok(whole.message.content && whole.done && whole.eval_count === 6)
    const parts = await collect(
      await client.chat({ model: MODEL, messages: COLOURS, options: { num_predict: 6 }, stream: true, logprobs: true, top_logprobs: 2 }),
    )
    const last = parts.at(-1)
    assert.ok(last.done && last.total_duration >= last.prompt_eval_duration + last.eval_duration)
    const logprobs = parts.flatMap((part) => part.logprobs ?? [])
    assert.equal(logprobs.length, 6)
    assert.ok(logprobs.every((one) => one.top_logprobs.length === 2 && one.logprob <= 0))
  },
  async generate() {
    const parts = await collect(await client.generate({ model: MODEL, prompt: 'Hi', options: { num_predict: 4 }, stream: true }))
    assert.equal(parts.at(-1).done_reason, 'length')
    const raw = await client.generate({ model: MODEL, prompt: 'Once upon a', raw: true, options: { num_predict: 4, temperature: 0 } })
    assert.ok(raw.response.startsWith(' time'), raw.response)
    await fails(400, () => client.generate({ model: MODEL, prompt: 'Hi', suffix: 'end' }))
    await fails(400, () => client.generate({ model: MODEL, prompt: 'Hi', think: true }))
  },
  async 'loading and unloading'() {
    assert.equal((await client.generate({ model: MODEL, prompt: '', keep_alive: '10m' })).done_reason, 'load')
    assert.ok((await client.ps()).models.some((model) => model.name === MODEL && model.digest.length === 64))
    assert.equal((await client.chat({ model: MODEL, messages: [], keep_alive: 0 })).done_reason, 'unload')
    assert.ok(!(await client.ps()).models.some((model) => model.name === MODEL))
    // A question brings it back.
    assert.ok((await client.chat({ model: MODEL, messages: COLOURS, options: { num_predict: 2 } })).load_duration > 0)
  },
  async 'models and errors'() {
    assert.ok((await client.list()).models.some((model) => model.name === MODEL))
    const shown = await client.show({ model: MODEL, verbose: false })
    assert.ok(shown.template && shown.capabilities.includes('completion'))
    assert.ok(shown.model_info['general.architecture'])
    assert.match((await client.version()).version, /^0\.\d+\.\d+$/)
    await fails(404, () => client.chat({ model: 'gpt-9', messages: COLOURS }))
    await fails(403, () => client.push({ model: MODEL }))
  },
  async embeddings() {
    const both = await client.embed({ model: EMBEDDER, input: ['Grass', 'The sky is blue.'] })
    const one = await client.embed({ model: EMBEDDER, input: 'The sky is blue.' })
    assert.equal(both.embeddings[1].length, one.embeddings[0].length)
    assert.equal((await client.embeddings({ model: EMBEDDER, prompt: 'Grass' })).embedding.length, one.embeddings[0].length)
  },
  async 'derived models'() {
    const statuses = await collect(
      await client.create({ model: 'mario-js', from: MODEL, system: 'You are Mario.', parameters: { num_predict: 5 }, stream: true }),
    )
    assert.equal(statuses.at(-1).status, 'success')
    const answer = await client.chat({ model: 'mario-js', messages: COLOURS })
    assert.ok(answer.model === 'mario-js' && answer.eval_count <= 5)
    const shown = await client.show({ model: 'mario-js' })
    assert.ok(shown.system === 'You are Mario.' && shown.modelfile.includes('PARAMETER num_predict 5'))
    await client.copy({ source: 'mario-js', destination: 'luigi-js' })
    for (const model of ['mario-js', 'luigi-js']) assert.equal((await client.delete({ model })).status, 'success')
    await fails(404, () => client.chat({ model: 'mario-js', messages: COLOURS }))
    await fails(400, () => client.create({ model: 'go-js', from: MODEL, template: '{{ if .System }}{{ .System }}{{ end }}' }))
  },
}

let failed = 0
for (const [name, check] of Object.entries(CHECKS)) {
  try {
    await check()
    console.log(`ok      ${name}`)
  } catch (error) {
    failed += 1
    console.log(`FAILED  ${name}`, error)
  }
}
process.exit(failed ? 1 : 0)
