import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.flink.api.common.eventtime.Watermark;
import org.apache.flink.api.common.eventtime.WatermarkGenerator;
import org.apache.flink.api.common.eventtime.WatermarkOutput;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.EventTimeSessionWindows;
import org.apache.flink.streaming.api.windowing.assigners.SlidingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.WindowAssigner;
import org.apache.flink.streaming.api.windowing.triggers.EventTimeTrigger;
import org.apache.flink.streaming.api.windowing.triggers.Trigger;
import org.apache.flink.streaming.api.windowing.triggers.TriggerResult;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;
import org.apache.flink.util.OutputTag;

/**
 * What Flink's WindowOperator does with scripts of rows: one job in a mini cluster for each line of the standard input,
 * "KIND SIZE EVERY LATENESS BOUND KEY:TIME KEY:TIME ...", times in ms. A watermark of the largest time - BOUND - 1 follows each row.
 * Prints for each line one of JSON: the firings [key, start, end, "on time" or "late", [numbers of rows], watermark], in their order, and
 * the numbers of the rows that came out at the side output for late data.
 */
public final class WindowTraces {
    private static final TypeInformation<Tuple3<Integer, String, Long>> ROW = Types.TUPLE(Types.INT, Types.STRING, Types.LONG);
    private static final OutputTag<Tuple3<Integer, String, Long>> LATE = new OutputTag<>("late", ROW);
    private static final List<String> FIRINGS = new ArrayList<>();  // of the job that runs: it is in this process
    private static final List<String> DROPPED = new ArrayList<>();
    private static String cause = "";

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            FIRINGS.clear();
            DROPPED.clear();
            run(line.trim().split(" "));
            System.out.println("{\"firings\": [" + String.join(", ", FIRINGS) + "], \"dropped\": [" + String.join(", ", DROPPED) + "]}");
        }
    }

    private static void run(String[] words) throws Exception {
        long lateness = Long.parseLong(words[3]), bound = Long.parseLong(words[4]);
        List<Tuple3<Integer, String, Long>> rows = new ArrayList<>();
        for (String word : Arrays.copyOfRange(words, 5, words.length)) {
            String[] parts = word.split(":");
            rows.add(Tuple3.of(rows.size(), parts[0], Long.parseLong(parts[1])));
        }
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.createLocalEnvironment(1, new Configuration());
        SingleOutputStreamOperator<String> windows = environment.fromData(rows, ROW)
            .assignTimestampsAndWatermarks(WatermarkStrategy.<Tuple3<Integer, String, Long>>forGenerator(context -> new AfterEach(bound))
                .withTimestampAssigner((row, before) -> row.f2))
            .keyBy(row -> row.f1)
            .window(assigner(words[0], Duration.ofMillis(Long.parseLong(words[1])), Duration.ofMillis(Long.parseLong(words[2]))))
            .trigger(new Cause())
            .allowedLateness(Duration.ofMillis(lateness))
            .sideOutputLateData(LATE)
            .process(new Content(), Types.STRING);
        windows.getSideOutput(LATE).map(row -> {
            DROPPED.add(String.valueOf(row.f0));
            return row.f0;
        }, Types.INT).sinkTo(new DiscardingSink<>());
        windows.sinkTo(new DiscardingSink<>());
        environment.execute();
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static WindowAssigner<Object, TimeWindow> assigner(String kind, Duration size, Duration every) {
        return switch (kind) {
            case "tumbling" -> TumblingEventTimeWindows.of(size);
            case "sliding" -> SlidingEventTimeWindows.of(size, every);
            default -> (WindowAssigner) EventTimeSessionWindows.withGap(size);
        };
    }

    private static final class AfterEach implements WatermarkGenerator<Tuple3<Integer, String, Long>> {
        private final long bound;
        private long highest = Long.MIN_VALUE;

        AfterEach(long bound) {
            this.bound = bound;
        }

        @Override
        public void onEvent(Tuple3<Integer, String, Long> row, long time, WatermarkOutput output) {
            highest = Math.max(highest, time);
            output.emitWatermark(new Watermark(highest - bound - 1));
        }

        @Override
        public void onPeriodicEmit(WatermarkOutput output) {}
    }

    /** Flink's own trigger; says why it fires. */
    private static final class Cause extends Trigger<Object, TimeWindow> {
        private final EventTimeTrigger trigger = EventTimeTrigger.create();

        @Override
        public TriggerResult onElement(Object row, long time, TimeWindow window, TriggerContext context) throws Exception {
            TriggerResult result = trigger.onElement(row, time, window, context);
            cause = result.isFire() ? "late" : cause;
            return result;
        }

        @Override
        public TriggerResult onEventTime(long time, TimeWindow window, TriggerContext context) throws Exception {
            TriggerResult result = trigger.onEventTime(time, window, context);
            cause = result.isFire() ? "on time" : cause;
            return result;
        }

        @Override
        public TriggerResult onProcessingTime(long time, TimeWindow window, TriggerContext context) throws Exception {
            return trigger.onProcessingTime(time, window, context);
        }

        @Override
        public boolean canMerge() {
            return true;
        }

        @Override
        public void onMerge(TimeWindow window, OnMergeContext context) {
            trigger.onMerge(window, context);
        }

        @Override
        public void clear(TimeWindow window, TriggerContext context) throws Exception {
            trigger.clear(window, context);
        }
    }

    private static final class Content extends ProcessWindowFunction<Tuple3<Integer, String, Long>, String, String, TimeWindow> {
        @Override
        public void process(String key, Context context, Iterable<Tuple3<Integer, String, Long>> rows, Collector<String> output) {
            List<String> numbers = new ArrayList<>();
            rows.forEach(row -> numbers.add(String.valueOf(row.f0)));
            String watermark = context.currentWatermark() == Long.MAX_VALUE ? "\"MAX\"" : String.valueOf(context.currentWatermark());
            FIRINGS.add("[\"" + key + "\", " + context.window().getStart() + ", " + context.window().getEnd() + ", \"" + cause + "\", ["
                + String.join(", ", numbers) + "], " + watermark + "]");
        }
    }
}
