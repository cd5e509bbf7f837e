import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.serialization.SimpleStringEncoder;
import org.apache.flink.connector.file.sink.FileSink;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.datastream.AsyncDataStream;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.async.AsyncFunction;
import org.apache.flink.streaming.api.functions.async.ResultFuture;
import org.apache.flink.streaming.api.functions.async.RichAsyncFunction;

/**
 * The work of benchmarks/bridge.py by Flink's own Async I/O, in a mini cluster.
 *
 * Lookups MODE KEYS URL OUT TASKS CAPACITY: MODE ordered or unordered; KEYS a file with a key per line; URL of the service; CAPACITY of
 * each task. Prints the seconds from submitting the job to its end, on one line; a job of 1,000 keys that asks nobody goes before it.
 */
public final class Lookups {
    private static final long TIMEOUT_S = 60;

    public static void main(String[] arguments) throws Exception {
        String mode = arguments[0];
        List<String> keys = Files.readAllLines(Path.of(arguments[1]));
        Path out = Path.of(arguments[3]);
        int tasks = Integer.parseInt(arguments[4]), capacity = Integer.parseInt(arguments[5]);
        run("ordered", keys.subList(0, Math.min(1000, keys.size())), new AtOnce(), out.resolve("warm"), tasks, capacity);
        long started = System.nanoTime();
        run(mode, keys, new Asked(arguments[2]), out.resolve("measured"), tasks, capacity);
        System.out.printf("seconds %.3f%n", (System.nanoTime() - started) / 1e9);
    }

    private static void run(
            String mode, List<String> keys, AsyncFunction<String, String> function, Path out, int tasks, int capacity) throws Exception {
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.createLocalEnvironment(tasks, new Configuration());
        DataStream<String> input = environment.fromData(keys).rebalance();
        DataStream<String> answers = mode.equals("ordered")
            ? AsyncDataStream.orderedWait(input, function, TIMEOUT_S, TimeUnit.SECONDS, capacity)
            : AsyncDataStream.unorderedWait(input, function, TIMEOUT_S, TimeUnit.SECONDS, capacity);
        answers.sinkTo(FileSink.forRowFormat(
            new org.apache.flink.core.fs.Path(out.toUri()), new SimpleStringEncoder<String>("UTF-8")).build());
        environment.execute(mode);
    }

    private static final class AtOnce implements AsyncFunction<String, String> {
        @Override
        public void asyncInvoke(String key, ResultFuture<String> result) {
            result.complete(List.of(key + ",1.0"));
        }
    }

    private static final class Asked extends RichAsyncFunction<String, String> {
        private final String url;
        private transient HttpClient client;

        Asked(String url) {
            this.url = url;
        }

        @Override
        public void open(OpenContext context) {
            client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1)
                .executor(Executors.newFixedThreadPool(2, work -> {
                    Thread thread = new Thread(work, "http");
                    thread.setDaemon(true);
                    return thread;
                })).build();
        }

        @Override
        public void asyncInvoke(String key, ResultFuture<String> result) {
            client.sendAsync(HttpRequest.newBuilder(URI.create(url + "/v1/" + key)).build(), HttpResponse.BodyHandlers.ofString())
                .whenComplete((response, error) -> {
                    if (error != null) {
                        result.completeExceptionally(error);
                    } else {
                        result.complete(List.of(key + "," + temperature(response.body())));
                    }
                });
        }

        private static String temperature(String body) {
            int from = body.indexOf("\"temp_c\": ") + "\"temp_c\": ".length();
            return body.substring(from, body.indexOf(',', from));
        }
    }
}
