import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.AppInfoParser;

/** The Java client, told what to do by a plan; see rounds.py. Runs against 3.9 and 4.x jars alike. */
public class Client {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        JsonNode plan = JSON.readTree(new File(args[2]));
        ObjectNode report = JSON.createObjectNode();
        report.put("client", "java " + AppInfoParser.getVersion());
        switch (args[1]) {
            case "round_trips" -> {
                ArrayNode rounds = report.putArray("rounds");
                for (JsonNode round : plan.get("rounds")) rounds.add(roundTrip(args[0], round));
            }
            default -> throw new IllegalArgumentException("no scenario " + args[1]);
        }
        System.out.println(JSON.writeValueAsString(report));
    }

    static ObjectNode roundTrip(String bootstrap, JsonNode round) throws Exception {
        String topic = round.get("topic").asText();
        int partitions = round.get("partitions").asInt();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all().get();
        }
        ObjectNode seen = JSON.createObjectNode().put("topic", topic);
        produce(bootstrap, topic, round, seen.putArray("sent"));
        consume(bootstrap, topic, partitions, round.get("records").size(), seen);
        return seen;
    }

    static void produce(String bootstrap, String topic, JsonNode round, ArrayNode sent) throws Exception {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("compression.type", round.get("codec").asText());
        config.put("acks", round.get("acks").asText());
        config.put("enable.idempotence", round.get("idempotent").asBoolean());
        config.put("linger.ms", 5);
        List<Future<RecordMetadata>> futures = new ArrayList<>();
        try (var producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (JsonNode r : round.get("records")) {
                List<Header> headers = new ArrayList<>();
                for (JsonNode h : r.get("headers")) headers.add(new RecordHeader(h.get(0).asText(), bytes(h.get(1))));
                futures.add(producer.send(new ProducerRecord<>(topic, r.get("partition").asInt(),
                    r.get("timestamp").asLong(), bytes(r.get("key")), bytes(r.get("value")), headers)));
            }
            producer.flush();
            for (Future<RecordMetadata> f : futures) {
                RecordMetadata m = f.get();
                ArrayNode pair = sent.addArray().add(m.partition());
                if (m.hasOffset()) pair.add(m.offset()); else pair.addNull();
            }
        }
    }

    static void consume(String bootstrap, String topic, int partitions, int count, ObjectNode seen) {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "auto.offset.reset", "none");
        List<TopicPartition> assigned = new ArrayList<>();
        for (int p = 0; p < partitions; p++) assigned.add(new TopicPartition(topic, p));
        ArrayNode read = seen.putArray("read");
        try (var consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(assigned);
            consumer.seekToBeginning(assigned);
            long deadline = System.currentTimeMillis() + 30_000;
            while (read.size() < count && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofMillis(500))) {
                    ObjectNode item = read.addObject().put("partition", r.partition()).put("offset", r.offset());
                    item.put("timestamp", r.timestamp());
                    item.put("key", text(r.key())).put("value", text(r.value()));
                    ArrayNode headers = item.putArray("headers");
                    for (Header h : r.headers()) headers.addArray().add(h.key()).add(text(h.value()));
                }
            }
            ObjectNode ends = seen.putObject("ends");
            consumer.endOffsets(assigned).forEach((p, end) -> ends.put(String.valueOf(p.partition()), end));
        }
    }

    static byte[] bytes(JsonNode node) { return node.isNull() ? null : Base64.getDecoder().decode(node.asText()); }

    static String text(byte[] data) { return data == null ? null : Base64.getEncoder().encodeToString(data); }
}
