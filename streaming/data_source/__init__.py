"""The data source ``dbsp_wcoj`` of Spark: views of a state directory as tables and streams."""
