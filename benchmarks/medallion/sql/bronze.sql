-- The change events as they arrive; each table is only appended to.
CREATE STREAMING TABLE bronze_customers AS
SELECT seq, op, changed_at, id, trim(name) AS name, upper(state) AS state
FROM STREAM(customers);

CREATE STREAMING TABLE bronze_products AS
SELECT seq, op, changed_at, id, name, lower(category) AS category, price
FROM STREAM(products);

CREATE STREAMING TABLE bronze_orders AS
SELECT seq, op, changed_at, id, customer, product, quantity, price, status
FROM STREAM(orders);

CREATE STREAMING TABLE bronze_reviews AS
SELECT seq, op, changed_at, id, customer, product, rating
FROM STREAM(reviews)
WHERE op = 'd' OR rating BETWEEN 1 AND 5;

CREATE STREAMING TABLE bronze_inventory AS
SELECT seq, op, changed_at, id, product, warehouse, on_hand
FROM STREAM(inventory);
