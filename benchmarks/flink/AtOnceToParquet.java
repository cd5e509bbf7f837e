import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collections;
import java.util.concurrent.TimeUnit;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.file.src.FileSource;
import org.apache.flink.streaming.api.datastream.AsyncDataStream;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.async.AsyncFunction;
import org.apache.flink.streaming.api.functions.async.ResultFuture;
import org.apache.parquet.hadoop.ParquetWriter;

/**
 * The work of benchmarks/throughput.py by Flink's own Async I/O, in a mini cluster: Parquet files of table() through a function that
 * completes at once, to Parquet files with all columns that ours have.
 *
 * AtOnceToParquet MODE IN OUT TASKS CAPACITY: MODE ordered or unordered; IN a folder with a file per task; CAPACITY of each task. Prints
 * the seconds from submitting the job to its end, on one line; the whole job runs three times before. Its files are in OUT/measured.
 *
 * Source, operator and sink are one chain and pass on the same objects: nothing is serialized or copied, see PassedOn.
 */
public final class AtOnceToParquet {
    private static final long TIMEOUT_S = 60;
    private static final int WARM_RUNS = 3;  // the first takes three times as long, the third hardly longer than any after it

    public static void main(String[] arguments) throws Exception {
        String mode = arguments[0];
        Path in = Path.of(arguments[1]), out = Path.of(arguments[2]);
        int tasks = Integer.parseInt(arguments[3]), capacity = Integer.parseInt(arguments[4]);
        for (int number = 0; number < WARM_RUNS; number++) {
            run(mode, in, out.resolve("warm-" + number), tasks, capacity);
        }
        long started = System.nanoTime();
        run(mode, in, out.resolve("measured"), tasks, capacity);
        System.out.printf("seconds %.3f%n", (System.nanoTime() - started) / 1e9);
    }

    private static void run(String mode, Path in, Path out, int tasks, int capacity) throws Exception {
        Files.createDirectories(out);
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.createLocalEnvironment(tasks, new Configuration());
        environment.getConfig().enableObjectReuse();
        DataStream<InputRow> input = environment.fromSource(
            FileSource.forBulkFileFormat(new InputRows(), new org.apache.flink.core.fs.Path(in.toUri())).build(),
            WatermarkStrategy.noWatermarks(), "rows");
        DataStream<AnsweredRow> answers = (mode.equals("ordered")
            ? AsyncDataStream.orderedWait(input, new AtOnce(), TIMEOUT_S, TimeUnit.SECONDS, capacity)
            : AsyncDataStream.unorderedWait(input, new AtOnce(), TIMEOUT_S, TimeUnit.SECONDS, capacity))
            .returns(new PassedOn<>(AnsweredRow.class));
        answers.sinkTo(new FilePerTask(out.toString()));
        environment.execute(mode);
    }

    private static final class AtOnce implements AsyncFunction<InputRow, AnsweredRow> {
        @Override
        public void asyncInvoke(InputRow row, ResultFuture<AnsweredRow> result) {
            result.complete(Collections.singleton(new AnsweredRow(row, 1.5)));
        }
    }

    private static final class FilePerTask implements Sink<AnsweredRow> {
        private final String folder;

        FilePerTask(String folder) {
            this.folder = folder;
        }

        @Override
        public SinkWriter<AnsweredRow> createWriter(WriterInitContext context) throws IOException {
            int task = context.getTaskInfo().getIndexOfThisSubtask();
            ParquetWriter<AnsweredRow> writer = WrittenRows.to(Path.of(folder, "part-" + task + ".parquet"));
            return new SinkWriter<>() {
                @Override
                public void write(AnsweredRow row, Context written) throws IOException {
                    writer.write(row);
                }

                @Override
                public void flush(boolean endOfInput) throws IOException {
                    if (endOfInput) {
                        writer.close();
                    }
                }

                @Override
                public void close() throws IOException {
                    writer.close();
                }
            };
        }
    }
}
