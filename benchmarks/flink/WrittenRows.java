import java.io.IOException;
import java.nio.file.Path;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.hadoop.conf.Configuration;
import org.apache.parquet.conf.ParquetConfiguration;
import org.apache.parquet.conf.PlainParquetConfiguration;
import org.apache.parquet.hadoop.ParquetFileWriter;
import org.apache.parquet.hadoop.ParquetWriter;
import org.apache.parquet.hadoop.api.WriteSupport;
import org.apache.parquet.hadoop.metadata.CompressionCodecName;
import org.apache.parquet.io.LocalOutputFile;
import org.apache.parquet.io.OutputFile;
import org.apache.parquet.io.api.Binary;
import org.apache.parquet.io.api.RecordConsumer;
import org.apache.parquet.schema.MessageType;
import org.apache.parquet.schema.MessageTypeParser;

/** Writes the columns that ours write, in their order; the audit columns as constants() in benchmarks/throughput.py has them. */
@SuppressWarnings("deprecation")  // the methods that Parquet wants overridden and no longer calls
final class WrittenRows extends WriteSupport<AnsweredRow> {
    private static final MessageType SCHEMA = MessageTypeParser.parseMessageType("""
        message rows {
          optional int64 id;
          optional int64 a;
          optional double b;
          optional binary c (STRING);
          optional binary d (STRING);
          optional binary e (STRING);
          optional boolean f;
          optional int64 g (TIMESTAMP(MICROS,true));
          optional double x;
          optional binary f_status (STRING);
          optional int64 f_answered_at (TIMESTAMP(MICROS,true));
          optional int32 _partition;
          optional int64 _input_seq;
          optional int64 _output_seq;
          optional int64 _segment;
          optional boolean _late;
          optional binary _source_file (STRING);
          optional int64 _source_row;
          optional binary _f_status (STRING);
          optional binary _f_source (STRING);
          optional group _f_attempts (LIST) {
            repeated group list {
              optional group element {
                optional int64 start;
                optional int64 end;
                optional boolean throttled;
              }
            }
          }
          optional double _f_latency_ms;
          optional double _f_paused_ms;
          optional binary _f_error (STRING);
          optional group _f_key {
            optional int64 id;
          }
        }
        """);
    private static final String[] NAMES = SCHEMA.getFields().stream().map(field -> field.getName()).toArray(String[]::new);
    private static final String[] DISTINCT = {"id", "a", "b", "g", "_source_row"};  // a dictionary of them is work for nothing
    private static final Binary OK = Binary.fromString("ok");

    private RecordConsumer to;
    private int place;

    static ParquetWriter<AnsweredRow> to(Path path) throws IOException {
        Builder builder = new Builder(new LocalOutputFile(path)).withConf(new PlainParquetConfiguration())
            .withCompressionCodec(CompressionCodecName.SNAPPY).withWriteMode(ParquetFileWriter.Mode.OVERWRITE);
        Stream.of(DISTINCT).forEach(name -> builder.withDictionaryEncoding(name, false));
        return builder.build();
    }

    @Override
    public WriteContext init(ParquetConfiguration configuration) {
        return new WriteContext(SCHEMA, Map.of());
    }

    @Override
    public WriteContext init(Configuration configuration) {
        return new WriteContext(SCHEMA, Map.of());
    }

    @Override
    public void prepareForWrite(RecordConsumer consumer) {
        to = consumer;
    }

    @Override
    public void write(AnsweredRow answered) {
        place = 0;
        to.startMessage();
        input(answered.row());
        answer(answered.x());
        row(answered.row());
        lookup();
        to.endMessage();
    }

    private void input(InputRow row) {
        number(row.id());
        number(row.a());
        fraction(row.b());
        text(row.c());
        text(row.d());
        text(row.e());
        truth(row.f());
        number(row.g());
    }

    private void answer(double x) {
        fraction(x);
        text(OK);
        number(1);
    }

    private void row(InputRow row) {
        start();
        to.addInteger(1);
        end();
        number(1);
        number(1);
        number(1);
        truth(true);
        text(row.sourceFile());
        number(row.sourceRow());
    }

    private void lookup() {
        text(OK);
        text(OK);
        attempts();
        fraction(1);
        fraction(1);
        text(OK);
        key();
    }

    private void attempts() {
        start();
        to.startGroup();
        to.startField("list", 0);
        to.startGroup();
        to.startField("element", 0);
        to.startGroup();
        to.startField("start", 0);
        to.addLong(1);
        to.endField("start", 0);
        to.startField("end", 1);
        to.addLong(1);
        to.endField("end", 1);
        to.startField("throttled", 2);
        to.addBoolean(true);
        to.endField("throttled", 2);
        to.endGroup();
        to.endField("element", 0);
        to.endGroup();
        to.endField("list", 0);
        to.endGroup();
        end();
    }

    private void key() {
        start();
        to.startGroup();
        to.startField("id", 0);
        to.addLong(1);
        to.endField("id", 0);
        to.endGroup();
        end();
    }

    private void number(long value) {
        start();
        to.addLong(value);
        end();
    }

    private void fraction(double value) {
        start();
        to.addDouble(value);
        end();
    }

    private void text(Binary value) {
        start();
        to.addBinary(value);
        end();
    }

    private void truth(boolean value) {
        start();
        to.addBoolean(value);
        end();
    }

    private void start() {
        to.startField(NAMES[place], place);
    }

    private void end() {
        to.endField(NAMES[place], place);
        place++;
    }

    private static final class Builder extends ParquetWriter.Builder<AnsweredRow, Builder> {
        Builder(OutputFile file) {
            super(file);
        }

        @Override
        protected Builder self() {
            return this;
        }

        @Override
        protected WriteSupport<AnsweredRow> getWriteSupport(Configuration configuration) {
            return new WrittenRows();
        }

        @Override
        protected WriteSupport<AnsweredRow> getWriteSupport(ParquetConfiguration configuration) {
            return new WrittenRows();
        }
    }
}
