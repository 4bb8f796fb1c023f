"""VARIANT in expressions: its functions, subscripts and casts.

The values are those of Spark 4 (`circuits.types.codecs.variants`). Dialects differ in these rules:

=========================== ============================ =========================================
construct                   spark                        others, as in Feldera
=========================== ============================ =========================================
parse_json of no JSON       an error                     NULL; in Snowflake an error
a cast that is impossible   an error                     NULL
a part                      ``v:a.b[0]``, from 0         ``v['a']['b'][1]``, from 1; in Snowflake
                                                         ``v:a.b[0]``, from 0
``v = w``                   refused, as in Spark         the values and types of numbers are equal
=========================== ============================ =========================================
"""
