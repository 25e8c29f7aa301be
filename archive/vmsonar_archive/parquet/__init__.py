"""The archive as tables: one Arrow schema per kind, made from the Structs, and the Parquet files derived from them."""
