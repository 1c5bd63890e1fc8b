"""Writes the seed corpus beside this file: small valid files, grammars, answers and requests for the fuzzers to start from, and
attacks that were found. Needs only Python."""

import exchanges
import files
import grammars

if __name__ == "__main__":
    files.write_seeds()
    grammars.write_seeds()
    exchanges.write_seeds()
