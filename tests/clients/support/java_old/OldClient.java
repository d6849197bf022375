import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.lang.reflect.Constructor;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.AppInfoParser;

/** Java's client of 0.9 to 2.8, driven by a plan; see old/rounds.py. What came later than 0.9 is reflected. */
public class OldClient {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        JsonNode plan = JSON.readTree(new File(args[2]));
        ObjectNode report = JSON.createObjectNode();
        report.put("client", "java " + AppInfoParser.getVersion());
        ArrayNode rounds = report.putArray("rounds");
        for (JsonNode round : plan.get("rounds")) {
            ObjectNode seen = rounds.addObject().put("topic", round.get("topic").asText());
            produce(args[0], round, seen.putArray("sent"));
            consume(args[0], round, seen);
        }
        System.out.println(JSON.writeValueAsString(report));
    }

    static void produce(String bootstrap, JsonNode round, ArrayNode sent) throws Exception {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("compression.type", round.get("codec").asText());
        config.put("acks", round.get("acks").asText());
        config.put("linger.ms", 5);
        List<Future<RecordMetadata>> futures = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (JsonNode r : round.get("records")) futures.add(producer.send(record(round.get("topic").asText(), r)));
            for (Future<RecordMetadata> f : futures) {
                RecordMetadata m = f.get();
                ArrayNode pair = sent.addArray().add(m.partition());
                if (m.offset() >= 0) pair.add(m.offset()); else pair.addNull();
            }
        }
    }

    static void consume(String bootstrap, JsonNode round, ObjectNode seen) throws Exception {
        String topic = round.get("topic").asText();
        int first = round.get("first").asInt(), total = round.get("total").asInt();
        ArrayNode read = seen.putArray("read");
        try (KafkaConsumer<byte[], byte[]> consumer = member(bootstrap, round)) {
            Map<TopicPartition, OffsetAndMetadata> places = new HashMap<>();
            for (ConsumerRecord<byte[], byte[]> r : poll(consumer, first)) {
                places.put(new TopicPartition(topic, r.partition()), new OffsetAndMetadata(r.offset() + 1));
                add(read, r);
            }
            consumer.commitSync(places);
        }
        ObjectNode committed = seen.putObject("committed"), ends = seen.putObject("ends");
        try (KafkaConsumer<byte[], byte[]> consumer = member(bootstrap, round)) {
            for (TopicPartition p : partitions(round)) {
                OffsetAndMetadata found = consumer.committed(p);
                committed.put(String.valueOf(p.partition()), found == null ? -1 : found.offset());
            }
            for (ConsumerRecord<byte[], byte[]> r : poll(consumer, total - first)) add(read, r);
        }
        Map<String, Object> config = config(bootstrap, round, "latest");
        config.put("group.id", topic + "-latest");
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> assigned = partitions(round);
            consumer.assign(assigned);
            for (TopicPartition p : assigned) ends.put(String.valueOf(p.partition()), consumer.position(p));
        }
    }

    static List<TopicPartition> partitions(JsonNode round) {
        List<TopicPartition> all = new ArrayList<>();
        for (int p = 0; p < round.get("partitions").asInt(); p++)
            all.add(new TopicPartition(round.get("topic").asText(), p));
        return all;
    }

    static Map<String, Object> config(String bootstrap, JsonNode round, String reset) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("group.id", round.get("group").asText());
        config.put("auto.offset.reset", reset);
        config.put("enable.auto.commit", false);
        config.put("fetch.max.wait.ms", 100);
        return config;
    }

    static KafkaConsumer<byte[], byte[]> member(String bootstrap, JsonNode round) {
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
            config(bootstrap, round, "earliest"), new ByteArrayDeserializer(), new ByteArrayDeserializer());
        List<String> topics = List.of(round.get("topic").asText());
        consumer.subscribe(topics);
        return consumer;
    }

    /** So many records, or those that arrive within thirty seconds. */
    @SuppressWarnings("deprecation") // 0.9 has no other poll
    static List<ConsumerRecord<byte[], byte[]>> poll(KafkaConsumer<byte[], byte[]> consumer, int count) {
        List<ConsumerRecord<byte[], byte[]>> found = new ArrayList<>();
        long deadline = System.currentTimeMillis() + 30_000;
        while (found.size() < count && System.currentTimeMillis() < deadline)
            for (ConsumerRecord<byte[], byte[]> r : consumer.poll(200)) found.add(r);
        return found.subList(0, Math.min(count, found.size()));
    }

    /** With a timestamp since 0.10, with headers since 0.11. */
    @SuppressWarnings("unchecked")
    static ProducerRecord<byte[], byte[]> record(String topic, JsonNode r) throws Exception {
        int partition = r.get("partition").asInt();
        byte[] key = bytes(r.get("key")), value = bytes(r.get("value"));
        long timestamp = r.get("timestamp").asLong();
        for (Constructor<?> c : ProducerRecord.class.getConstructors()) {
            if (c.getParameterCount() == 6)
                return (ProducerRecord<byte[], byte[]>) c.newInstance(topic, partition, timestamp, key, value, headers(r));
        }
        for (Constructor<?> c : ProducerRecord.class.getConstructors()) {
            if (c.getParameterCount() == 5)
                return (ProducerRecord<byte[], byte[]>) c.newInstance(topic, partition, timestamp, key, value);
        }
        return new ProducerRecord<>(topic, partition, key, value);
    }

    static List<Object> headers(JsonNode r) throws Exception {
        Class<?> header = Class.forName("org.apache.kafka.common.header.internals.RecordHeader");
        List<Object> all = new ArrayList<>();
        for (JsonNode h : r.get("headers"))
            all.add(header.getConstructor(String.class, byte[].class).newInstance(h.get(0).asText(), bytes(h.get(1))));
        return all;
    }

    static void add(ArrayNode read, ConsumerRecord<byte[], byte[]> r) throws Exception {
        ObjectNode item = read.addObject().put("partition", r.partition()).put("offset", r.offset());
        item.put("key", r.key()).put("value", r.value());
        item.put("timestamp", has("timestamp") ? (Long) ConsumerRecord.class.getMethod("timestamp").invoke(r) : -1L);
        ArrayNode headers = item.putArray("headers");
        if (!has("headers")) return;
        Class<?> header = Class.forName("org.apache.kafka.common.header.Header");
        for (Object h : (Iterable<?>) ConsumerRecord.class.getMethod("headers").invoke(r))
            headers.addArray().add((String) header.getMethod("key").invoke(h)).add((byte[]) header.getMethod("value").invoke(h));
    }

    static boolean has(String method) {
        for (var m : ConsumerRecord.class.getMethods()) if (m.getName().equals(method)) return true;
        return false;
    }

    static byte[] bytes(JsonNode text) throws Exception {
        return text.isNull() ? null : text.binaryValue();
    }
}
