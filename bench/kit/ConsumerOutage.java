/* How long Java's consumer gets no record, and how long none of its commits is acknowledged.
 *
 *     ConsumerOutage BOOTSTRAP TOPIC PARTITION,PARTITION... GROUP
 *
 * A member of a group with its own defaults; it commits every 50 ms. It prints `ready` when it has
 * read from all partitions and committed, continues until its standard input ends, and then prints
 * one line of JSON: the longest time between two records, of each partition, and between two commits.
 */
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class ConsumerOutage {
    private static final TreeMap<String, Long> last = new TreeMap<>();
    private static final TreeMap<String, Long> longest = new TreeMap<>();

    private static void note(String what) {
        long now = System.nanoTime();
        Long before = last.put(what, now);
        if (before != null)
            longest.merge(what, now - before, Math::max);
    }

    public static void main(String[] arguments) throws Exception {
        int watched = arguments[2].split(",").length + 1; // and the commits
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("group.id", arguments[3]);
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "earliest");
        properties.put("key.deserializer", ByteArrayDeserializer.class.getName());
        properties.put("value.deserializer", ByteArrayDeserializer.class.getName());
        boolean isReady = false;
        long committed = System.nanoTime();
        Thread input = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (java.io.IOException closed) {
                // The same as the end.
            }
        });
        input.setDaemon(true);
        input.start();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties)) {
            consumer.subscribe(List.of(arguments[1]));
            while (input.isAlive()) {
                for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofMillis(10)))
                    note(Integer.toString(each.partition()));
                if (!last.isEmpty() && System.nanoTime() - committed > 50_000_000L) {
                    committed = System.nanoTime();
                    consumer.commitAsync((offsets, error) -> {
                        if (error == null)
                            note("commits");
                    });
                }
                if (!isReady && last.size() == watched) {
                    isReady = true;
                    longest.clear(); // the first requests include the start
                    System.out.println("ready");
                }
            }
            List.copyOf(last.keySet()).forEach(ConsumerOutage::note);
        }
        System.out.println("{\"gaps_ms\": {" + longest.entrySet().stream()
                .map(each -> "\"" + each.getKey() + "\": " + each.getValue() / 1e6)
                .collect(Collectors.joining(", ")) + "}}");
    }
}
