CREATE MATERIALIZED VIEW gold_sales AS
SELECT c.state, p.category, count(*) AS orders, sum(o.worth) AS worth
FROM silver_orders o
JOIN silver_customers c ON c.id = o.customer
JOIN silver_products p ON p.id = o.product
WHERE o.status <> 'cancelled'
GROUP BY c.state, p.category;

CREATE MATERIALIZED VIEW gold_customers AS
SELECT c.id, c.name, count(o.id) AS orders, coalesce(sum(o.worth), 0) AS worth,
       CASE WHEN coalesce(sum(o.worth), 0) >= 2000000 THEN 'gold'
            WHEN coalesce(sum(o.worth), 0) >= 500000 THEN 'silver'
            ELSE 'basic' END AS tier
FROM silver_customers c LEFT JOIN silver_orders o ON o.customer = c.id
GROUP BY c.id, c.name;

CREATE MATERIALIZED VIEW gold_ratings AS
SELECT p.id, p.name, p.category, count(r.id) AS reviews, avg(r.rating) AS rating
FROM silver_products p LEFT JOIN silver_reviews r ON r.product = p.id
GROUP BY p.id, p.name, p.category;

CREATE MATERIALIZED VIEW gold_low_stock AS
SELECT i.product, p.name, i.on_hand, s.sold
FROM (SELECT product, sum(on_hand) AS on_hand FROM silver_inventory GROUP BY product) i
JOIN (SELECT product, sum(quantity) AS sold FROM silver_orders GROUP BY product) s
  ON s.product = i.product
JOIN silver_products p ON p.id = i.product
WHERE i.on_hand < s.sold;

CREATE MATERIALIZED VIEW gold_best_products AS
SELECT category, place, product, worth
FROM (
    SELECT p.category, o.product, o.worth,
           row_number() OVER (PARTITION BY p.category ORDER BY o.worth DESC, o.product) AS place
    FROM (SELECT product, sum(worth) AS worth FROM silver_orders GROUP BY product) o
    JOIN silver_products p ON p.id = o.product)
WHERE place <= 10;
