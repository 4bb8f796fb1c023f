"""Runs the queries of Nexmark over generated events, and measures events per CPU second.

    python -m benchmarks.nexmark [--query q3] [--size 10000] [--passes 5] [--check]

Nexmark is an auction: persons open auctions, and others bid. The queries are q0 to q22 of the
repository nexmark/nexmark, in the form that the repository feldera/feldera uses in
``benchmark/feldera-sql`` (views; columns in snake case); both are under the Apache License 2.0. The
texts here are written for this benchmark from the descriptions of the queries, with the same
constructs; ``--texts DIR`` runs other files ``q*.sql`` instead, such as those of a copy of one of
these repositories (its tables must have the columns of `benchmarks.nexmark_events`).

Differences from the published suite: q10 has no file sink; q12 windows by event time, as Feldera
does; q13 joins a table that is given at the start; q14 counts a character by `replace`, not by a
function in Java. q9, q18 and q19 order tied rows by further columns, so that their answer is one.

The figures of Feldera are those that its authors published for one core of a machine with 16 cores.
They are from another machine, and are no comparison side by side.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any, Final

import duckdb
import pyarrow as pa

from benchmarks.nexmark_events import TABLES, generate, micro_batches
from benchmarks.result import Result, Row
from circuits import Circuit, compile_sql
from circuits.plan.traversal import read_relations
from dbsp_wcoj import DbspWcojError

CLAIM: Final = (
    "NEXMARK: events per CPU second. Target: 2, 5 and 8 times what Feldera published per core of "
    "another machine, in micro-batches of 1,000, 10,000 and 100,000 events; q11, without a "
    "published figure, 300,000 events per second"
)
#: The sizes of micro-batches, and the target for each: how many times Feldera's figure.
TARGETS: Final = {1_000: 2, 10_000: 5, 100_000: 8}
SIZES: Final = tuple(TARGETS)
#: Events per second and core that Feldera published, on another machine.
FELDERA: Final = {
    **{"q3": 413_000, "q4": 265_000, "q5": 412_000, "q7": 196_000, "q8": 415_000, "q9": 57_000},
    **{"q15": 221_000, "q16": 51_000, "q18": 85_000, "q19": 75_000, "q20": 85_000},
}
#: The target in events per CPU second, at every size, of queries without a published figure.
MIN_RATES: Final = {"q11": 300_000}
SIDE_INPUT: Final = "CREATE TABLE side_input (key BIGINT NOT NULL, value VARCHAR);"

# A count ({0}) of the bids below, between and above two prices, with names that begin with {1}.
_PRICE_RANKS: Final = """
    {0} FILTER (WHERE price < 10000) AS {1}_low,
    {0} FILTER (WHERE price >= 10000 AND price < 1000000) AS {1}_middle,
    {0} FILTER (WHERE price >= 1000000) AS {1}_high"""
_BIDS, _BIDDERS, _AUCTIONS = (
    f"{call} AS {name},{_PRICE_RANKS.format(call, name)}"
    for call, name in (
        ("count(*)", "bids"),
        ("count(DISTINCT bidder)", "bidders"),
        ("count(DISTINCT auction)", "auctions"),
    )
)
_WINNING: Final = """
    SELECT a.*, b.auction, b.bidder, b.price, b.date_time AS bid_time, b.extra AS bid_extra,
        row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time, b.bidder,
            b.extra) AS place
    FROM auction a, bid b
    WHERE a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires"""
_HOT: Final = """
    SELECT auction, count(*) AS n, window_start, window_end
    FROM TABLE(HOP(TABLE bid, DESCRIPTOR(date_time), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
    GROUP BY auction, window_start, window_end"""

QUERIES: Final = {
    "q0": "SELECT auction, bidder, price, date_time, extra FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price AS price, date_time, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q3": """SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
        WHERE a.category = 10 AND (p.state = 'OR' OR p.state = 'ID' OR p.state = 'CA')""",
    "q4": """SELECT category, avg(final) AS average FROM (
            SELECT a.category, max(b.price) AS final FROM auction a, bid b
            WHERE a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
            GROUP BY a.id, a.category) AS winning
        GROUP BY category""",
    "q5": f"""SELECT hot.auction, hot.n FROM ({_HOT}) AS hot JOIN (
            SELECT max(n) AS most, window_start, window_end FROM ({_HOT}) AS counts
            GROUP BY window_start, window_end) AS best
        ON hot.window_start = best.window_start AND hot.window_end = best.window_end
            AND hot.n >= best.most""",
    "q6": f"""SELECT seller, avg(price) OVER (PARTITION BY seller ORDER BY bid_time, id
            ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS average
        FROM ({_WINNING}) AS winning WHERE place <= 1""",
    "q7": """SELECT b.auction, b.bidder, b.price, b.date_time, b.extra FROM bid b JOIN (
            SELECT max(price) AS highest, window_end AS until
            FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(date_time), INTERVAL '10' SECOND))
            GROUP BY window_start, window_end) AS period
        ON b.price = period.highest
        WHERE b.date_time BETWEEN period.until - INTERVAL '10' SECOND AND period.until""",
    "q8": """SELECT p.id, p.name, p.since FROM (
            SELECT id, name, window_start AS since, window_end AS until
            FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(date_time), INTERVAL '10' SECOND))
            GROUP BY id, name, window_start, window_end) AS p
        JOIN (
            SELECT seller, window_start AS since, window_end AS until
            FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(date_time), INTERVAL '10' SECOND))
            GROUP BY seller, window_start, window_end) AS a
        ON p.id = a.seller AND p.since = a.since AND p.until = a.until""",
    "q9": f"SELECT * EXCLUDE (place) FROM ({_WINNING}) AS winning WHERE place <= 1",
    "q10": """SELECT auction, bidder, price, date_time, extra,
            strftime(date_time, '%Y-%m-%d') AS day, strftime(date_time, '%H:%M') AS minute
        FROM bid""",
    "q11": """SELECT bidder, count(*) AS bids,
            SESSION_START(date_time, INTERVAL '10' SECOND) AS since,
            SESSION_END(date_time, INTERVAL '10' SECOND) AS until
        FROM bid GROUP BY bidder, SESSION(date_time, INTERVAL '10' SECOND)""",
    "q12": """SELECT bidder, count(*) AS bids, window_start, window_end
        FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(date_time), INTERVAL '10' SECOND))
        GROUP BY bidder, window_start, window_end""",
    "q13": """SELECT b.auction, b.bidder, b.price, b.date_time, s.value
        FROM bid b JOIN side_input s ON b.auction % 10000 = s.key""",
    "q14": """SELECT auction, bidder, 0.908 * price AS price,
            CASE WHEN hour(date_time) >= 8 AND hour(date_time) <= 18 THEN 'dayTime'
                WHEN hour(date_time) <= 6 OR hour(date_time) >= 20 THEN 'nightTime'
                ELSE 'otherTime' END AS time_type,
            date_time, extra, length(extra) - length(replace(extra, 'c', '')) AS letters
        FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000""",
    "q15": f"""SELECT strftime(date_time, '%Y-%m-%d') AS day, {_BIDS}, {_BIDDERS}, {_AUCTIONS}
        FROM bid GROUP BY strftime(date_time, '%Y-%m-%d')""",
    "q16": f"""SELECT channel, strftime(date_time, '%Y-%m-%d') AS day,
            max(strftime(date_time, '%H:%M')) AS minute, {_BIDS}, {_BIDDERS}, {_AUCTIONS}
        FROM bid GROUP BY channel, strftime(date_time, '%Y-%m-%d')""",
    "q17": f"""SELECT auction, strftime(date_time, '%Y-%m-%d') AS day, {_BIDS},
            min(price) AS lowest, max(price) AS highest, avg(price) AS average,
            sum(price) AS total
        FROM bid GROUP BY auction, strftime(date_time, '%Y-%m-%d')""",
    "q18": """SELECT auction, bidder, price, channel, url, date_time, extra FROM (
            SELECT *, row_number() OVER (PARTITION BY bidder, auction
                ORDER BY date_time DESC, extra) AS place FROM bid) AS last
        WHERE place <= 1""",
    "q19": """SELECT * FROM (
            SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, extra) AS place
            FROM bid) AS best
        WHERE place <= 10""",
    "q20": """SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.date_time AS bid_time,
            b.extra AS bid_extra, a.item_name, a.description, a.initial_bid, a.reserve,
            a.date_time AS auction_time, a.expires, a.seller, a.category, a.extra AS auction_extra
        FROM bid b JOIN auction a ON b.auction = a.id WHERE a.category = 10""",
    "q21": """SELECT auction, bidder, price, channel,
            CASE WHEN lower(channel) = 'apple' THEN '0' WHEN lower(channel) = 'google' THEN '1'
                WHEN lower(channel) = 'facebook' THEN '2' WHEN lower(channel) = 'baidu' THEN '3'
                ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id
        FROM bid WHERE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) <> ''
            OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu')""",
    "q22": """SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS folder1,
            split_part(url, '/', 5) AS folder2, split_part(url, '/', 6) AS folder3 FROM bid""",
}

_TUMBLING: Final = """(SELECT *, time_bucket(INTERVAL '10 seconds', date_time) AS window_start,
    time_bucket(INTERVAL '10 seconds', date_time) + INTERVAL '10 seconds' AS window_end FROM {})"""
#: The table functions of a query, and how DuckDB, which does not have them, writes them.
ORACLE_TABLES: Final = {
    **{
        f"TABLE(TUMBLE(TABLE {name}, DESCRIPTOR(date_time), INTERVAL '10' SECOND))": (
            _TUMBLING.format(name)
        )
        for name in ("bid", "person", "auction")
    },
    "TABLE(HOP(TABLE bid, DESCRIPTOR(date_time), INTERVAL '2' SECOND, INTERVAL '10' SECOND))": """
        (SELECT *, window_start + INTERVAL '10 seconds' AS window_end FROM (
            SELECT *, unnest([time_bucket(INTERVAL '2 seconds', date_time)
                - INTERVAL '2 seconds' * k FOR k IN range(5)]) AS window_start FROM bid))""",
}
#: Queries that the oracle needs in another form.
ORACLE_QUERIES: Final = {
    "q11": """SELECT bidder, count(*) AS bids, min(date_time) AS since,
            max(date_time) + INTERVAL '10 seconds' AS until
        FROM (SELECT *, sum(CASE WHEN before IS NULL
                OR date_time - before > INTERVAL '10 seconds' THEN 1 ELSE 0 END)
                OVER (PARTITION BY bidder ORDER BY date_time ROWS UNBOUNDED PRECEDING) AS session
            FROM (SELECT *, lag(date_time) OVER (PARTITION BY bidder ORDER BY date_time) AS before
                FROM bid))
        GROUP BY bidder, session""",
}


def sql_program(query: str) -> str:
    """Return the SQL of the tables, and of the query as a view."""
    return f"{TABLES}{SIDE_INPUT}\nCREATE VIEW {query} AS {QUERIES[query]};"


def side_input() -> pa.Table:
    """Return the table that q13 joins."""
    return pa.table({"key": range(10_000), "value": [f"value {key}" for key in range(10_000)]})


def oracle_answer(query: str, relations: dict[str, pa.Table]) -> Counter[tuple[Any, ...]]:
    """Return the rows of a query over all rows of the relations, computed by DuckDB."""
    text = ORACLE_QUERIES.get(query, QUERIES[query])
    for function, table in ORACLE_TABLES.items():
        text = text.replace(function, table)
    with duckdb.connect(config={"threads": 1}) as database:
        for name, rows in relations.items():
            database.register(f"{name}_rows", rows)
            database.execute(f"CREATE TABLE {name} AS SELECT * FROM {name}_rows")
        return Counter(database.execute(text).fetchall())


def add_delta(answer: Counter[tuple[Any, ...]], delta: pa.Table) -> None:
    """Add a delta to an answer."""
    for row in delta.to_pylist():
        *values, weight = row.values()
        answer[tuple(values)] += weight


def measure(text: str, events: int, size: int, seed: int) -> float:
    """Return the events per CPU second of the median micro-batch; the first one is left out."""
    circuit = compile_sql(text, threads=1)
    inputs = read_inputs(circuit)
    if "side_input" in inputs:
        circuit.step({"side_input": side_input()})
    batches = [
        {name: rows for name, rows in batch.items() if name in inputs}
        for batch in micro_batches(events + size, size, seed=seed)
    ]
    seconds = []
    for batch in batches:
        begin = time.process_time()
        circuit.step(batch)
        seconds.append(time.process_time() - begin)
    return size / median(seconds[1:])  # the first step compiles the kernels


def rate_row(query: str, size: int, rate: float) -> Row:
    """Return the row of a measurement; target and met are None for a query or size without one."""
    published = FELDERA.get(query)
    target: float | None = MIN_RATES.get(query)
    if published is not None and size in TARGETS:
        target = TARGETS[size] * published
    return {
        "query": query,
        "events in a micro-batch": size,
        "events per CPU second": round(rate),
        "Feldera, published": published,
        "times Feldera": None if published is None else round(rate / published, 2),
        "target": target,
        "met": None if target is None else rate >= target,
    }


def read_inputs(circuit: Circuit) -> set[str]:
    """Return the names of the relations that the views of a circuit read."""
    return {name for plan in circuit.plans.values() for name in read_relations(plan)}


def check(query: str, events: int, size: int, seed: int) -> bool:
    """Return whether the sum of the deltas of a query is DuckDB's answer."""
    circuit = compile_sql(sql_program(query))
    answer: Counter[tuple[Any, ...]] = Counter()
    add_delta(answer, circuit.step({"side_input": side_input()})[query])
    for batch in micro_batches(events, size, seed=seed):
        add_delta(answer, circuit.step(batch)[query])
    relations = generate_all(events, size, seed) | {"side_input": side_input()}
    return {row: n for row, n in answer.items() if n} == dict(oracle_answer(query, relations))


def generate_all(events: int, size: int, seed: int) -> dict[str, pa.Table]:
    """Return the rows of all micro-batches, by relation."""
    batches = [generate(first, size, seed=seed) for first in range(0, events, size)]
    return {name: pa.concat_tables([batch[name] for batch in batches]) for name in batches[0]}


def main() -> None:
    """Measure and print the rates; write them if asked."""
    parser = argparse.ArgumentParser(description="Run the queries of Nexmark.")
    parser.add_argument("--query", action="append", choices=list(QUERIES))
    parser.add_argument("--texts", type=Path, help="a folder with files q*.sql to run instead")
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--size", type=int, action="append")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--passes", type=int, default=1, help="measure all queries so often; report the medians"
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="compare each answer over 20,000 events with DuckDB; exit status 1 if one differs",
    )
    parser.add_argument("--json", type=Path, help="write the result to this file")
    options = parser.parse_args()
    if options.texts is not None and (options.check or options.query):
        parser.error("--texts runs all files of a folder, and cannot check them")
    texts = {query: sql_program(query) for query in options.query or QUERIES}
    if options.texts is not None:
        files = sorted(options.texts.glob("q*.sql"))
        texts = {file.stem: f"{TABLES}{SIDE_INPUT}\n{file.read_text()}" for file in files}
    result = Result("nexmark", CLAIM, {"NEXMARK": [], "REFUSED": [], "EXACT": []})
    rates: dict[tuple[str, int], list[float]] = {}
    for number in range(options.passes):
        for query, text in list(texts.items()):
            try:
                for size in options.size or SIZES:
                    rate = measure(text, max(options.events, 3 * size), size, options.seed)
                    rates.setdefault((query, size), []).append(rate)
                    print(rate_row(query, size, rate), flush=True)
                if options.check and number == 0:
                    is_exact = check(query, 20_000, 1_000, options.seed)
                    result.tables["EXACT"].append({"query": query, "as DuckDB": is_exact})
            except DbspWcojError as error:
                reason = str(error).split("\n")[0][:200]
                result.tables["REFUSED"].append({"query": query, "reason": reason})
                rates = {key: measured for key, measured in rates.items() if key[0] != query}
                del texts[query]
    for (query, size), measured in rates.items():
        result.tables["NEXMARK"].append(rate_row(query, size, median(measured)))
    result.show()
    if options.json is not None:
        result.write(options.json)
    if not all(row["as DuckDB"] for row in result.tables["EXACT"]):
        raise SystemExit("a query has other rows than DuckDB; see the table EXACT")


if __name__ == "__main__":
    main()
