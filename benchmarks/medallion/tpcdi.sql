-- Views in the manner of TPC-DI: versions of dimensions (SCD type 2), and facts that join them.
CREATE MATERIALIZED VIEW dim_customer AS
SELECT id, seq AS version, tier, city, changed_at AS valid_from, next_at AS valid_to, next_at IS NULL AS is_current
FROM (SELECT *, lead(changed_at) OVER (PARTITION BY id ORDER BY seq) AS next_at FROM customers)
WHERE op <> 'd';

CREATE MATERIALIZED VIEW dim_account AS
SELECT id, seq AS version, customer, broker, changed_at AS valid_from, next_at AS valid_to, next_at IS NULL AS is_current
FROM (SELECT *, lead(changed_at) OVER (PARTITION BY id ORDER BY seq) AS next_at FROM accounts)
WHERE op <> 'd';

CREATE MATERIALIZED VIEW fact_trade AS
SELECT t.id, t.traded_at, a.version AS account_version, c.version AS customer_version, c.tier, t.symbol,
    t.quantity, t.quantity * t.price AS worth
FROM trades t
JOIN dim_account a ON a.id = t.account AND t.traded_at >= a.valid_from
    AND (t.traded_at < a.valid_to OR a.valid_to IS NULL)
JOIN dim_customer c ON c.id = a.customer AND t.traded_at >= c.valid_from
    AND (t.traded_at < c.valid_to OR c.valid_to IS NULL);

CREATE MATERIALIZED VIEW fact_holdings AS
SELECT account, symbol, sum(quantity) AS quantity, count(*) AS trades FROM trades GROUP BY account, symbol;

CREATE MATERIALIZED VIEW fact_cash_balances AS
SELECT account, day, amount, sum(amount) OVER (PARTITION BY account ORDER BY day) AS balance
FROM (SELECT account, day, sum(amount) AS amount FROM cash GROUP BY account, day);

CREATE MATERIALIZED VIEW fact_market_history AS
SELECT symbol, day, close,
    max(high) OVER (PARTITION BY symbol ORDER BY day ROWS BETWEEN 363 PRECEDING AND CURRENT ROW) AS high_of_52_weeks,
    min(low) OVER (PARTITION BY symbol ORDER BY day ROWS BETWEEN 363 PRECEDING AND CURRENT ROW) AS low_of_52_weeks
FROM market;

CREATE MATERIALIZED VIEW gold_tiers AS
SELECT tier, count(*) AS trades, sum(worth) AS worth, count(DISTINCT symbol) AS symbols FROM fact_trade GROUP BY tier;

CREATE MATERIALIZED VIEW gold_prospects AS
SELECT c.city, count(*) AS customers, sum(CASE WHEN a.id IS NULL THEN 1 ELSE 0 END) AS without_account
FROM dim_customer c LEFT JOIN (SELECT DISTINCT customer AS id FROM dim_account WHERE is_current) a ON a.id = c.id
WHERE c.is_current GROUP BY c.city;
