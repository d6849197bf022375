import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/**
 * Counts words with Kafka Streams, exactly once, and reports every count that a read_committed reader sees.
 * Says "1/4", "2/4" and so on when so much has been counted: whoever listens may kill a broker then.
 */
public class WordCount {
    static final int PARTITIONS = 3;
    static final List<String> WORDS = List.of("all", "work", "and", "no", "play");

    public static void main(String[] args) throws Exception {
        ObjectMapper json = new ObjectMapper();
        JsonNode plan = json.readTree(new File(args[1]));
        String bootstrap = args[0], name = plan.get("name").asText();
        int total = plan.get("words").asInt();
        short replicas = (short) plan.get("replicas").asInt();
        String in = name + "-in", out = name + "-out";
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            Map<String, String> config = Map.of("min.insync.replicas", String.valueOf(Math.min(2, replicas)));
            admin.createTopics(List.of(new NewTopic(in, PARTITIONS, replicas).configs(config),
                new NewTopic(out, PARTITIONS, replicas).configs(config))).all().get();
        }
        KafkaStreams streams = streams(bootstrap, name, in, out, replicas);
        streams.start();
        Thread writer = new Thread(() -> write(bootstrap, in, total, plan.get("pause_ms").asLong()));
        writer.start();
        ObjectNode report = json.createObjectNode();
        Map<String, List<Long>> counts = read(bootstrap, out, total, plan.get("patience_ms").asLong());
        writer.join();
        streams.close(Duration.ofSeconds(20));
        ObjectNode said = report.putObject("counts");
        counts.forEach((word, seen) -> {
            ArrayNode list = said.putArray(word);
            seen.forEach(list::add);
        });
        System.out.println(json.writeValueAsString(report));
    }

    static KafkaStreams streams(String bootstrap, String name, String in, String out, short replicas) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(in, Consumed.with(Serdes.String(), Serdes.String()))
            .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
            .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts"))
                .withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()))
            .toStream().to(out, Produced.with(Serdes.String(), Serdes.Long()));
        Properties config = new Properties();
        config.put("application.id", name);
        config.put("bootstrap.servers", bootstrap);
        config.put("processing.guarantee", "exactly_once_v2");
        config.put("commit.interval.ms", 200);
        config.put("statestore.cache.max.bytes", 0);  // every count is written, not the last of some
        config.put("replication.factor", (int) replicas);
        config.put("num.stream.threads", 2);
        config.put("state.dir", System.getProperty("java.io.tmpdir") + "/" + name);
        config.put("consumer.session.timeout.ms", 10_000);
        KafkaStreams streams = new KafkaStreams(builder.build(), config);
        streams.setUncaughtExceptionHandler(error -> StreamThreadExceptionResponse.REPLACE_THREAD);
        return streams;
    }

    static void write(String bootstrap, String topic, int total, long pauseMs) {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "linger.ms", 5);
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            for (int n = 0; n < total; n++) {
                producer.send(new ProducerRecord<>(topic, n % PARTITIONS, null, WORDS.get(n % WORDS.size())));
                if (n % 10 == 9) Thread.sleep(pauseMs);
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    static Map<String, List<Long>> read(String bootstrap, String topic, int total, long patienceMs) {
        Map<String, List<Long>> counts = new TreeMap<>();
        List<TopicPartition> all = new ArrayList<>();
        for (int p = 0; p < PARTITIONS; p++) all.add(new TopicPartition(topic, p));
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "isolation.level", "read_committed");
        try (var consumer = new KafkaConsumer<>(config, new StringDeserializer(), new LongDeserializer())) {
            consumer.assign(all);
            consumer.seekToBeginning(all);
            int seen = 0, said = 0;
            long deadline = System.currentTimeMillis() + patienceMs;
            while (seen < total && System.currentTimeMillis() < deadline) {
                for (var record : consumer.poll(Duration.ofMillis(200))) {
                    counts.computeIfAbsent(record.key(), word -> new ArrayList<>()).add(record.value());
                    seen++;
                }
                for (; said < 4 && seen * 4 / total > said; said++) System.out.println((said + 1) + "/4");
            }
            // One more look: nothing may come twice.
            long end = System.currentTimeMillis() + 3_000;
            while (System.currentTimeMillis() < end)
                for (var record : consumer.poll(Duration.ofMillis(200)))
                    counts.computeIfAbsent(record.key(), word -> new ArrayList<>()).add(record.value());
        }
        return counts;
    }
}
