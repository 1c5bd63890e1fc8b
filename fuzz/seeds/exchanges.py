"""What models answer and what clients send."""

import json

from encoding import write, write_all


def output_seeds():
    call = '{"name": "f", "arguments": {"a": ["x\\n", 1.5, null]}}'
    arguments = '{"a": "\\ud83d\\ude00"}'
    answers = {
        "hermes": f"<think>\nHm.\n</think>\n\n<tool_call>\n{call}\n</tool_call>\n<tool_call>{call}</tool_call>",
        "json": f"[{call}, {call}]",
        "string": '{"name": "f", "arguments": "{\\"a\\": 1}"}; ' + call,
        "python": "[f(a=1, b='x', c=[True, {\"k\": None}]), f()]",
        "python_tag": f"<|python_tag|>{call}",
        "function": f"<function=f>{arguments}</function>",
        "mistral": f"[TOOL_CALLS]f[ARGS]{arguments}[TOOL_CALLS][{call}]",
        "deepseek": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n"
        f"{arguments}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "kimi": "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
        f"{arguments}<|tool_call_end|><|tool_calls_section_end|>",
    }
    write_all("output", {name: "\x08" + answer for name, answer in answers.items()})
    # The high four bits are the style, in the order of src/answers.rs.
    styles = {
        "style_plain": (1, "<think>x</think>" + call),
        "style_json": (2, call),
        "style_python_tag": (3, f"<|python_tag|>{call}; {call}"),
        "style_function": (4, f"<function=f>{arguments}</function>"),
        "style_python_start": (5, "<|python_start|>[f(a=1)]<|python_end|>"),
        "style_python": (6, "[f(a={'k': [1, None]}, b=-1.5e3)]"),
        "style_lfm": (7, "<|tool_call_start|>[f(a='x\\n')]<|tool_call_end|>done"),
        "style_mistral": (8, f"[TOOL_CALLS]f[CALL_ID]1[ARGS]{arguments}"),
        "style_deepseek": (9, f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{arguments}<｜tool▁call▁end｜>"),
        "style_kimi": (10, answers["kimi"]),
        "style_command": (11, '<|START_ACTION|>[{"tool_name": "f", "parameters": {"a": 1}}]<|END_ACTION|>'),
        "style_think": (12, "<think>a</think>b"),
        "style_think_brackets": (13, "[THINK]a[/THINK]b" + call),
        "style_think_command": (14, "<|START_THINKING|>a<|END_THINKING|>b"),
    }
    for name, (style, answer) in styles.items():
        write("output", name, bytes([style << 4]) + answer.encode())


def request_seeds():
    messages = [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
    tool = {"name": "f", "description": "", "parameters": {"type": "object"}}
    function = {"type": "function", "function": tool}
    chat = {"model": "m", "messages": messages, "max_tokens": 2, "temperature": 0.5, "stop": ["x"], "n": 2, "logprobs": True,
            "top_logprobs": 2, "logit_bias": {"1": 1}, "tools": [function], "tool_choice": "auto", "stream": True}
    shape = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    # In the order of the paths in targets/requests.rs.
    bodies = [
        ("chat", chat),
        ("completion", {"prompt": [[5, 6]], "max_tokens": 2, "echo": True, "logprobs": 1, "guided_regex": "[a-z]+"}),
        ("response", {"input": messages, "instructions": "x", "max_output_tokens": 2, "tools": [{"type": "function", **tool}]}),
        ("tokenize", {"messages": messages, "add_special_tokens": True, "return_token_strs": True}),
        ("detokenize", {"tokens": [5, 6]}),
        ("message", {"model": "m", "max_tokens": 2, "system": [{"type": "text", "text": "x"}], "stop_sequences": ["x"], "messages": [
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x", "is_error": True}]}]}),
        ("count", {"model": "m", "messages": messages, "tools": [{"name": "f", "input_schema": {}}]}),
        ("ollama_chat", {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "options": {"num_predict": 2, "top_k": 3},
                         "format": shape}),
        ("ollama_generate", {"model": "m", "prompt": "Hi", "raw": True, "context": [5], "options": {"num_predict": 2}}),
        ("show", {"model": "m"}),
        ("generate", {"prompt": "Hi", "max_tokens": 2, "seed": 1}),
        ("batch", {"prompts": ["Hi", ""], "max_tokens": 2, "stream": True}),
        ("stream", {"prompt": "Hi", "max_tokens": 2}),
    ]
    for path, (name, body) in enumerate(bodies):
        write("requests", name, bytes([path]) + json.dumps(body).encode())


def http_seeds():
    def post(path, body, *headers):
        lines = [f"POST {path} HTTP/1.1", "host: localhost", "content-type: application/json", *headers]
        if not any(line.lower().startswith(("content-length", "transfer-encoding")) for line in headers):
            lines.append(f"content-length: {len(body)}")
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body

    chat = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}).encode()
    streamed = json.dumps({"model": "m", "prompt": "Hi", "max_tokens": 2, "stream": True}).encode()
    get = lambda path, *headers: "\r\n".join([f"GET {path} HTTP/1.1", "host: localhost", *headers]).encode() + b"\r\n\r\n"
    chunks = b"5\r\n" + chat[:5] + b"\r\n" + f"{len(chat) - 5:x};x=1".encode() + b"\r\n" + chat[5:] + b"\r\n0\r\n\r\n"
    connections = {
        "health": get("/health"),
        "metrics": get("/metrics", "connection: close"),
        "models": get("/v1/models/m", "authorization: Bearer x", "x-request-id: a"),
        "tags": get("/api/tags") + get("/api/ps") + get("/api/version"),
        "docs": get("/openapi.json", "accept-encoding: gzip"),
        "chat": post("/v1/chat/completions", chat, "connection: close"),
        "stream": post("/v1/completions", streamed),
        "pipelined": post("/v1/messages", chat, "x-priority: bulk") + get("/health") + post("/api/chat", chat),
        "chunked": post("/v1/chat/completions", chunks, "transfer-encoding: chunked"),
        "expect": post("/v1/chat/completions", chat, "expect: 100-continue", "x-session-id: s"),
        "preflight": b"OPTIONS /v1/models HTTP/1.1\r\nhost: localhost\r\norigin: http://x\r\naccess-control-request-method: GET\r\n\r\n",
        "foreign": get("/v1/models").replace(b"localhost", b"evil.example"),
        "delete": b"DELETE /api/delete HTTP/1.1\r\nhost: localhost\r\ncontent-length: 13\r\n\r\n{\"model\":\"m\"}",
        "head": b"HEAD / HTTP/1.0\r\nhost: localhost\r\n\r\n",
        "trace": get("/", "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "x-forwarded-for: 1.2.3.4"),
        "half_head": b"POST /v1/chat/completions HTTP/1.1\r\nhost: local",
        "half_body": post("/v1/chat/completions", chat[:20], "content-length: 100"),
        "two_lengths": post("/tokenize", chat, "content-length: 5", "content-length: 6"),
        "smuggled": post("/tokenize", b"0\r\n\r\nGET /health HTTP/1.1\r\n\r\n", "content-length: 5", "transfer-encoding: chunked"),
        "long_length": post("/tokenize", b"{}", "content-length: 18446744073709551615"),
        "escaped": get("/v1/models/%2e%2e%2f%00%ff?x=%zz"),
        "http2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
        "tls": b"\x16\x03\x01\x00\xf1\x01\x00\x00\xed\x03\x03" + bytes(40),
    }
    write_all("http", connections)


def write_seeds():
    output_seeds()
    request_seeds()
    http_seeds()
