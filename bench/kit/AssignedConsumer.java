import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * As kafka-consumer-perf-test, without a consumer group: reads a number of records from the
 * beginning of all partitions and prints records, seconds. Its options are that tool's.
 */
public class AssignedConsumer {
    public static void main(String[] args) {
        String topic = args[1];
        long wanted = Long.parseLong(args[3]);
        List<TopicPartition> assigned = new ArrayList<>();
        for (int p = 0; p < Integer.parseInt(args[2]); p++) assigned.add(new TopicPartition(topic, p));
        Map<String, Object> config = Map.of(
            "bootstrap.servers", args[0], "max.partition.fetch.bytes", 1048576,
            "receive.buffer.bytes", 2 * 1024 * 1024, "check.crcs", false);
        try (var consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(assigned);
            consumer.seekToBeginning(assigned);
            long begun = System.nanoTime(), last = begun, read = 0;
            while (read < wanted && System.nanoTime() - last < 10_000_000_000L) {
                int count = consumer.poll(Duration.ofMillis(1000)).count();
                if (count > 0) last = System.nanoTime();
                read += count;
            }
            System.out.printf("{\"records\": %d, \"seconds\": %.6f}%n", read, (last - begun) / 1e9);
        }
    }
}
