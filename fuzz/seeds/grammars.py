"""Grammars: schemas, expressions, Lark and GBNF."""

import json

from encoding import write, write_all


def schema_seeds():
    text = {"type": "string"}
    schemas = {
        "object": {"type": "object", "properties": {"a": text, "b": {"type": "integer", "minimum": 0, "maximum": 9}},
                   "required": ["a"], "additionalProperties": False},
        "lists": {"type": "array", "items": {"enum": ["x", 1, None, True]}, "minItems": 1, "maxItems": 3, "uniqueItems": True},
        "strings": {"type": "string", "pattern": "^[a-z]{2,4}$", "minLength": 2, "maxLength": 4},
        "formats": {"anyOf": [{"type": "string", "format": name} for name in
                              ["date-time", "date", "time", "email", "uuid", "uri", "ipv4", "ipv6", "hostname", "duration"]]},
        "numbers": {"type": "number", "exclusiveMinimum": -1.5, "exclusiveMaximum": 1e3, "multipleOf": 0.25},
        "references": {"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "properties": {
            "left": {"$ref": "#/$defs/tree"}, "value": {"type": "number"}}}}},
        "combined": {"oneOf": [{"const": "a"}, {"allOf": [text, {"maxLength": 3}]}], "not": {"const": "b"}},
        "patterns": {"type": "object", "patternProperties": {"^x": {"type": "boolean"}}, "propertyNames": {"maxLength": 3},
                     "minProperties": 1, "maxProperties": 2},
        "tuple": {"type": ["array", "null"], "prefixItems": [text, {"type": "null"}], "items": False},
        "conditional": {"if": {"required": ["a"]}, "then": {"required": ["b"]}, "else": {"dependentRequired": {"c": ["d"]}}},
        "anything": True,
        # Attacks: each compiled without end.
        "attack_multiples": {"allOf": [{"type": "integer", "multipleOf": 9973}, {"type": "integer", "multipleOf": 9967}]},
        "attack_multiple": {"type": "integer", "multipleOf": 999983},
        "attack_patterns": {"allOf": [{"type": "string", "pattern": f"(.*a){{{n}}}.*b"} for n in range(4, 10)]},
        "attack_lengths": {"type": "array", "items": {"type": "string", "maxLength": 100000}, "maxItems": 100000},
    }
    write_all("schema", {name: "\0" + json.dumps(schema) for name, schema in schemas.items()})
    # As a tool's arguments, and as either.
    for name, switches in [("tool", 4), ("either", 7)]:
        write("schema", name, bytes([switches]) + json.dumps(schemas["references"]).encode())


def regex_seeds():
    expressions = {
        "classes": r"[a-z]+\d{2,4}(foo|bar)?[^\s]*",
        "unicode": r"\p{L}+[à-ÿ]\x41\u00e9",
        "flags": r"(?i)abc(?-i:d)(?s:.)*?",
        "anchors": r"^a\b.*$",
        "email": r"[\w.+-]+@[\w-]+(\.[\w-]+){1,3}",
        "nothing": "",
        "attack_counts": r"((((a{1,50}){1,50}){1,50}){1,50})",
        "attack_lookback": r"(.*a.{20}b){5}",
        "attack_deep": "(" * 200 + "a" + ")*" * 200,
    }
    write_all("regex", expressions)


def lark_seeds():
    grammars = {
        "words": 'start: greeting " " NAME\ngreeting: "Hello" | "Hi"\nNAME: /[A-Z][a-z]+/\n',
        "sum": 'start: term (("+" | "-") term)*\nterm: NUMBER | "(" start ")"\nNUMBER: /[0-9]+/\n%ignore /\\s+/\n',
        "json": 'start: "x" answer\nanswer: %json {"type": "object", "properties": {"a": {"type": "integer"}}}\n',
        "counts": 'start: A{2,3} b? c*\nA: "a"\nb: "b"\nc: /c/i\n',
        "attributes": 'start[temperature=0.5]: text[lazy] T\ntext[max_tokens=3]: /.*/\nT[lazy]: /x.*y/\n',
        "combined": "start: T\nT: /a.*/ & /.*b/ & ~/.*c.*/\n",
        "special": "start: <|eos|> | /a/\n",
        "regex_tag": 'start: %regex {"substring_words": "a b c d"}\n',
        # Attacks: each compiled without end.
        "attack_and": "start: T\nT: " + " & ".join(f"/(.*a.{{{n}}}b)*/" for n in range(1, 31)) + "\n",
        "attack_json": 'start: %json {"allOf": [{"type": "integer", "multipleOf": 9973}, {"type": "integer", "multipleOf": 9967}]}\n',
        "attack_counts": 'start: a{1,1000}\na: b{1,1000}\nb: "c"{1,1000}\n',
        "attack_ambiguous": 'start: start start | "a" | ""\n',
        "attack_nested_json": "start: " + "%json " * 50 + "{}\n",
    }
    write_all("lark", grammars)


def gbnf_seeds():
    grammars = {
        "object": 'root ::= "{" ws pair ("," ws pair)* "}"\npair ::= "\\"" [a-z]+ "\\":" ws value\nvalue ::= [0-9]{1,3} | "true"\nws ::= [ \\t\\n]*\n',
        "escapes": 'root ::= [^"\\\\\\x7F\\u0000-\\U0000001F] "\\x41" . # a comment\n',
        "counts": 'root ::= a? b+ c{2} d{1,} e{,3}\na ::= "a"\nb ::= "b"\nc ::= "c"\nd ::= "d"\ne ::= ("e" | "f")\n',
        "attack_counts": 'root ::= (((("a"{1,100}){1,100}){1,100}){1,100})\n',
        "attack_left": 'root ::= root root | "a" |\n',
        "attack_deep": "root ::= " + "(" * 300 + '"a"' + ")" * 300 + "\n",
    }
    write_all("gbnf", grammars)


def write_seeds():
    schema_seeds()
    regex_seeds()
    lark_seeds()
    gbnf_seeds()
