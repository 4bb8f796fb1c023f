-- The current row of each key: that of its last event, unless this deletes it.
CREATE MATERIALIZED VIEW silver_customers AS
SELECT id, name, state, changed_at
FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY seq DESC) AS age FROM bronze_customers)
WHERE age = 1 AND op <> 'd';

CREATE MATERIALIZED VIEW silver_products AS
SELECT id, name, category, price, changed_at
FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY seq DESC) AS age FROM bronze_products)
WHERE age = 1 AND op <> 'd';

CREATE MATERIALIZED VIEW silver_orders AS
SELECT id, customer, product, quantity, quantity * price AS worth, status, changed_at
FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY seq DESC) AS age FROM bronze_orders)
WHERE age = 1 AND op <> 'd';

CREATE MATERIALIZED VIEW silver_reviews AS
SELECT id, customer, product, rating, changed_at
FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY seq DESC) AS age FROM bronze_reviews)
WHERE age = 1 AND op <> 'd';

CREATE MATERIALIZED VIEW silver_inventory AS
SELECT id, product, warehouse, on_hand, changed_at
FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY seq DESC) AS age FROM bronze_inventory)
WHERE age = 1 AND op <> 'd';
