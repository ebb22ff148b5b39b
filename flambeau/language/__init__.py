"""The language of operators: definitions, schemas, dtypes, promotion.

It knows primitives and the intermediate representation, and neither the compiler nor the driver.
"""
