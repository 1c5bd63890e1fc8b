#!/usr/bin/env python3
"""graphiti-core, unchanged, ingests an episode into an embedded graph through a running server.

    python3 -m venv graphiti && graphiti/bin/pip install 'graphiti-core[kuzu]' httpx
    ropeway serve &
    graphiti/bin/python tests/clients/graphiti_ingest.py http://127.0.0.1:8000

Entities and facts are extracted with JSON schemas, names and facts are embedded, everything lands in a Kuzu database in memory. A
small model finds little sense in the text; what is checked is that no call fails and no answer fails to parse.
"""

import asyncio
import logging
import os
import sys
from datetime import datetime, timezone

os.environ["GRAPHITI_TELEMETRY_ENABLED"] = "false"

from graphiti_core import Graphiti
from graphiti_core.cross_encoder.openai_reranker_client import OpenAIRerankerClient
from graphiti_core.driver.driver import GraphProvider
from graphiti_core.driver.kuzu_driver import KuzuDriver
from graphiti_core.embedder.openai import OpenAIEmbedder, OpenAIEmbedderConfig
from graphiti_core.graph_queries import get_fulltext_indices
from graphiti_core.llm_client.config import LLMConfig
from graphiti_core.llm_client.openai_generic_client import OpenAIGenericClient
from graphiti_core.nodes import EpisodeType

EPISODE = "Alice moved from Berlin to Paris in 2021. There she works with Bob at the bakery of the Rue Cler."


class Complaints(logging.Handler):
    """Everything the library logs as an error."""

    def __init__(self):
        super().__init__(logging.ERROR)
        self.messages = []

    def emit(self, record):
        self.messages.append(record.getMessage())


class Counted(OpenAIGenericClient):
    """The generic client, counting its calls."""

    calls = 0

    async def _generate_response(self, *given, **named):
        Counted.calls += 1
        return await super()._generate_response(*given, **named)


async def ingest(url):
    access = dict(api_key="none", base_url=f"{url}/v1")
    config = LLMConfig(model="smollm2:135m", small_model="smollm2:135m", temperature=0.7, **access)
    embedder = OpenAIEmbedder(OpenAIEmbedderConfig(embedding_model="all-minilm", embedding_dim=384, **access))
    graph = Graphiti(
        graph_driver=KuzuDriver(db=":memory:"),
        llm_client=Counted(config, max_tokens=512),
        embedder=embedder,
        cross_encoder=OpenAIRerankerClient(config),
    )
    await graph.build_indices_and_constraints()
    for query in get_fulltext_indices(GraphProvider.KUZU):  # which the line above leaves out
        await graph.driver.execute_query(query)
    result = await graph.add_episode(
        name="a letter",
        episode_body=EPISODE,
        source=EpisodeType.text,
        source_description="a letter",
        reference_time=datetime(2026, 1, 1, tzinfo=timezone.utc),
    )
    found = await graph.search("Where does Alice live?")
    await graph.close()
    return result, found


def main():
    complaints = Complaints()
    logging.getLogger("graphiti_core").addHandler(complaints)
    result, found = asyncio.run(ingest(sys.argv[1].rstrip("/")))
    names = ", ".join(node.name[:40] for node in result.nodes)
    print(f"{Counted.calls} extractions; {len(result.nodes)} entities ({names}), {len(result.edges)} facts; {len(found)} found")
    for message in complaints.messages:
        print("complaint:", message[:300])
    sys.exit(1 if complaints.messages else 0)


if __name__ == "__main__":
    main()
