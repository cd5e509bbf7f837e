import org.apache.parquet.io.api.Binary;

/** A row of table() in benchmarks/throughput.py, and where it was read. Its text stays as read: nothing here looks into it. */
record InputRow(
    long id, long a, double b, Binary c, Binary d, Binary e, boolean f, long g, Binary sourceFile, long sourceRow) {}
