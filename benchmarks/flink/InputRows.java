import java.io.IOException;
import java.nio.file.Path;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.file.src.FileSourceSplit;
import org.apache.flink.connector.file.src.reader.BulkFormat;
import org.apache.flink.connector.file.src.util.ArrayResultIterator;
import org.apache.parquet.column.ColumnDescriptor;
import org.apache.parquet.column.ColumnReader;
import org.apache.parquet.column.Dictionary;
import org.apache.parquet.column.impl.ColumnReadStoreImpl;
import org.apache.parquet.column.page.PageReadStore;
import org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.parquet.io.LocalInputFile;
import org.apache.parquet.io.api.Binary;
import org.apache.parquet.io.api.Converter;
import org.apache.parquet.io.api.GroupConverter;
import org.apache.parquet.io.api.PrimitiveConverter;
import org.apache.parquet.schema.MessageType;
import org.apache.parquet.schema.PrimitiveType.PrimitiveTypeName;

/** The rows of a Parquet file, straight off its columns; a file is never split. */
final class InputRows implements BulkFormat<InputRow, FileSourceSplit> {
    private static final int ROWS_PER_BATCH = 2048;  // as Flink's own Parquet formats

    @Override
    public Reader<InputRow> createReader(Configuration configuration, FileSourceSplit split) throws IOException {
        return new FileReader(split.path().getPath());
    }

    @Override
    public Reader<InputRow> restoreReader(Configuration configuration, FileSourceSplit split) {
        throw new UnsupportedOperationException("no checkpoints here");
    }

    @Override
    public boolean isSplittable() {
        return false;
    }

    @Override
    public TypeInformation<InputRow> getProducedType() {
        return new PassedOn<>(InputRow.class);
    }

    private static final class FileReader implements Reader<InputRow> {
        private final ParquetFileReader file;
        private final MessageType schema;
        private final Binary name;
        private PrimitiveConverter[] converters;
        private ColumnReader[] columns;
        private long left;
        private long read;

        FileReader(String path) throws IOException {
            file = ParquetFileReader.open(new LocalInputFile(Path.of(path)));
            schema = file.getFileMetaData().getSchema();
            name = Binary.fromString("file:" + path);
        }

        @Override
        public RecordIterator<InputRow> readBatch() throws IOException {
            if (left == 0 && !nextGroup()) {
                return null;
            }
            InputRow[] rows = new InputRow[(int) Math.min(ROWS_PER_BATCH, left)];
            long first = read;
            for (int number = 0; number < rows.length; number++) {
                rows[number] = next();
            }
            left -= rows.length;
            ArrayResultIterator<InputRow> batch = new ArrayResultIterator<>();
            batch.set(rows, rows.length, 0, first);
            return batch;
        }

        private boolean nextGroup() throws IOException {
            PageReadStore pages = file.readNextRowGroup();
            if (pages == null) {
                return false;
            }
            left = pages.getRowCount();
            converters = schema.getColumns().stream().map(FileReader::converter).toArray(PrimitiveConverter[]::new);
            ColumnReadStoreImpl store = new ColumnReadStoreImpl(
                pages, new Columns(converters), schema, file.getFileMetaData().getCreatedBy());
            columns = schema.getColumns().stream().map(store::getColumnReader).toArray(ColumnReader[]::new);
            return true;
        }

        private static PrimitiveConverter converter(ColumnDescriptor column) {
            return column.getPrimitiveType().getPrimitiveTypeName() == PrimitiveTypeName.BINARY ? new Texts() : new PrimitiveConverter() {};
        }

        private InputRow next() {
            return new InputRow(
                number(0), number(1), fraction(2), text(3), text(4), text(5), truth(6), number(7), name, read++);
        }

        private ColumnReader present(int place) {
            ColumnReader column = columns[place];
            if (column.getCurrentDefinitionLevel() != column.getDescriptor().getMaxDefinitionLevel()) {
                throw new IllegalStateException("a null in " + column.getDescriptor());
            }
            return column;
        }

        private long number(int place) {
            ColumnReader column = present(place);
            long value = column.getLong();
            column.consume();
            return value;
        }

        private double fraction(int place) {
            ColumnReader column = present(place);
            double value = column.getDouble();
            column.consume();
            return value;
        }

        private Binary text(int place) {
            ColumnReader column = present(place);
            column.writeCurrentValueToConverter();
            column.consume();
            return ((Texts) converters[place]).last;
        }

        private boolean truth(int place) {
            ColumnReader column = present(place);
            boolean value = column.getBoolean();
            column.consume();
            return value;
        }

        @Override
        public void close() throws IOException {
            file.close();
        }
    }

    /** Texts that outlive the reader's buffers; those of a dictionary are made once. */
    private static final class Texts extends PrimitiveConverter {
        private Binary[] known;
        private Binary last;

        @Override
        public boolean hasDictionarySupport() {
            return true;
        }

        @Override
        public void setDictionary(Dictionary dictionary) {
            known = new Binary[dictionary.getMaxId() + 1];
            for (int id = 0; id < known.length; id++) {
                known[id] = Binary.fromConstantByteArray(dictionary.decodeToBinary(id).getBytes());
            }
        }

        @Override
        public void addValueFromDictionary(int id) {
            last = known[id];
        }

        @Override
        public void addBinary(Binary value) {
            last = Binary.fromConstantByteArray(value.getBytes());
        }
    }

    private static final class Columns extends GroupConverter {
        private final Converter[] columns;

        Columns(Converter[] columns) {
            this.columns = columns;
        }

        @Override
        public Converter getConverter(int place) {
            return columns[place];
        }

        @Override
        public void start() {}

        @Override
        public void end() {}
    }
}
