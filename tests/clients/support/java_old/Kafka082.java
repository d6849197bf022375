import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import kafka.api.ConsumerMetadataRequest;
import kafka.api.PartitionOffsetRequestInfo;
import kafka.common.OffsetAndMetadata;
import kafka.common.OffsetMetadataAndError;
import kafka.common.TopicAndPartition;
import kafka.consumer.Consumer;
import kafka.consumer.ConsumerConfig;
import kafka.consumer.ConsumerIterator;
import kafka.consumer.ConsumerTimeoutException;
import kafka.javaapi.ConsumerMetadataResponse;
import kafka.javaapi.FetchResponse;
import kafka.javaapi.OffsetCommitRequest;
import kafka.javaapi.OffsetFetchRequest;
import kafka.javaapi.OffsetRequest;
import kafka.javaapi.consumer.ConsumerConnector;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.javaapi.producer.Producer;
import kafka.message.MessageAndMetadata;
import kafka.message.MessageAndOffset;
import kafka.network.BlockingChannel;
import kafka.producer.KeyedMessage;
import kafka.producer.Partitioner;
import kafka.producer.ProducerConfig;
import kafka.utils.VerifiableProperties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The clients of Kafka 0.8.2, driven by a plan; see old/rounds.py. The scenario says which:
 *
 *   java         the producer in Java, and SimpleConsumer; offsets in Kafka (OffsetCommit v1)
 *   scala        the producer in Scala, and SimpleConsumer; offsets in ZooKeeper (OffsetCommit v0)
 *   zookeeper    the producer in Scala, and the consumer that uses ZooKeeper; offsets in ZooKeeper
 *   storage      the same consumer, offsets.storage=kafka
 */
public class Kafka082 {
    static final ObjectMapper JSON = new ObjectMapper();
    static final String CLIENT = "kafka-0.8.2";
    static final int TIMEOUT = 30_000, SIZE = 1 << 20;

    public static class InThePlan implements Partitioner {
        public InThePlan(VerifiableProperties ignored) {}

        @Override
        public int partition(Object key, int partitions) {
            return (Integer) key;
        }
    }

    public static void main(String[] args) throws Exception {
        JsonNode plan = JSON.readTree(new File(args[2]));
        ObjectNode report = JSON.createObjectNode().put("client", "kafka 0.8.2.2, " + args[1]);
        ArrayNode rounds = report.putArray("rounds");
        for (JsonNode round : plan.get("rounds")) {
            ObjectNode seen = rounds.addObject().put("topic", round.get("topic").asText());
            if (args[1].equals("java")) produce(args[0], round, seen.putArray("sent"));
            else produceInScala(args[0], round);
            switch (args[1]) {
                case "java" -> consume(args[0], round, (short) 1, seen);
                case "scala" -> consume(args[0], round, (short) 0, seen);
                case "zookeeper" -> stream(args[0], plan, round, "zookeeper", seen);
                case "storage" -> stream(args[0], plan, round, "kafka", seen);
                default -> throw new IllegalArgumentException("no scenario " + args[1]);
            }
        }
        System.out.println(JSON.writeValueAsString(report));
        System.exit(0);
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
            for (JsonNode r : round.get("records"))
                futures.add(producer.send(new ProducerRecord<>(round.get("topic").asText(),
                    r.get("partition").asInt(), bytes(r.get("key")), bytes(r.get("value")))));
            for (Future<RecordMetadata> f : futures) {
                RecordMetadata m = f.get();
                ArrayNode pair = sent.addArray().add(m.partition());
                if (m.offset() >= 0) pair.add(m.offset()); else pair.addNull();
            }
        }
    }

    static void produceInScala(String bootstrap, JsonNode round) throws Exception {
        Properties config = new Properties();
        config.put("metadata.broker.list", bootstrap);
        config.put("compression.codec", round.get("codec").asText());
        config.put("request.required.acks", round.get("acks").asText().replace("all", "-1"));
        config.put("partitioner.class", InThePlan.class.getName());
        Producer<byte[], byte[]> producer = new Producer<>(new ProducerConfig(config));
        List<KeyedMessage<byte[], byte[]>> some = new ArrayList<>();
        for (JsonNode r : round.get("records")) {
            some.add(new KeyedMessage<>(round.get("topic").asText(), bytes(r.get("key")),
                r.get("partition").asInt(), bytes(r.get("value"))));
            if (some.size() < 200) continue;
            producer.send(some);
            some.clear();
        }
        if (!some.isEmpty()) producer.send(some);
        producer.close();
    }

    static void consume(String bootstrap, JsonNode round, short version, ObjectNode seen) throws Exception {
        String topic = round.get("topic").asText(), group = round.get("group").asText();
        int first = round.get("first").asInt(), total = round.get("total").asInt();
        ArrayNode read = seen.putArray("read");
        ObjectNode committed = seen.putObject("committed"), ends = seen.putObject("ends");
        List<TopicAndPartition> places = new ArrayList<>();
        for (int p = 0; p < round.get("partitions").asInt(); p++) places.add(new TopicAndPartition(topic, p));
        SimpleConsumer consumer = connect(bootstrap);
        Map<TopicAndPartition, Long> next = new HashMap<>();
        for (TopicAndPartition p : places) next.put(p, offset(consumer, p, kafka.api.OffsetRequest.EarliestTime()));
        fetch(consumer, next, first, read);
        Map<TopicAndPartition, OffsetAndMetadata> offsets = new HashMap<>();
        next.forEach((p, offset) -> offsets.put(p, new OffsetAndMetadata(offset, "", -1L)));
        if (version > 0) findCoordinator(bootstrap, group);
        var response = consumer.commitOffsets(new OffsetCommitRequest(group, offsets, 0, CLIENT, version));
        if (response.hasError()) throw new IllegalStateException("commit: " + response.errors());
        consumer.close();
        SimpleConsumer second = connect(bootstrap);
        next.clear();
        var found = second.fetchOffsets(new OffsetFetchRequest(group, places, version, 0, CLIENT)).offsets();
        for (TopicAndPartition p : places) {
            OffsetMetadataAndError each = found.get(p);
            if (each.error() != 0) throw new IllegalStateException("committed offsets: error " + each.error());
            committed.put(String.valueOf(p.partition()), each.offset());
            next.put(p, each.offset());
        }
        fetch(second, next, total - first, read);
        for (TopicAndPartition p : places)
            ends.put(String.valueOf(p.partition()), offset(second, p, kafka.api.OffsetRequest.LatestTime()));
        second.close();
    }

    static SimpleConsumer connect(String bootstrap) {
        String[] address = bootstrap.split(":");
        return new SimpleConsumer(address[0], Integer.parseInt(address[1]), TIMEOUT, 64 * 1024, CLIENT);
    }

    /** Waits until the group has a coordinator: its first request has the broker create a topic. */
    static void findCoordinator(String bootstrap, String group) throws Exception {
        String[] address = bootstrap.split(":");
        var channel = new BlockingChannel(address[0], Integer.parseInt(address[1]), 64 * 1024, 64 * 1024, TIMEOUT);
        channel.connect();
        long deadline = System.currentTimeMillis() + TIMEOUT;
        for (;;) {
            channel.send(new ConsumerMetadataRequest(group, (short) 0, 0, CLIENT));
            short error = ConsumerMetadataResponse.readFrom(channel.receive().buffer()).errorCode();
            if (error == 0) break;
            if (System.currentTimeMillis() > deadline) throw new IllegalStateException("coordinator: error " + error);
            Thread.sleep(100);
        }
        channel.disconnect();
    }

    static long offset(SimpleConsumer consumer, TopicAndPartition place, long time) {
        var asked = Map.of(place, new PartitionOffsetRequestInfo(time, 1));
        var response = consumer.getOffsetsBefore(new OffsetRequest(asked, kafka.api.OffsetRequest.CurrentVersion(), CLIENT));
        if (response.hasError())
            throw new IllegalStateException("offsets: error " + response.errorCode(place.topic(), place.partition()));
        return response.offsets(place.topic(), place.partition())[0];
    }

    static void fetch(SimpleConsumer consumer, Map<TopicAndPartition, Long> next, int count, ArrayNode read) {
        long deadline = System.currentTimeMillis() + TIMEOUT;
        int left = count;
        while (left > 0 && System.currentTimeMillis() < deadline) {
            var request = new kafka.api.FetchRequestBuilder().clientId(CLIENT).maxWait(100).minBytes(1);
            next.forEach((p, offset) -> request.addFetch(p.topic(), p.partition(), offset, SIZE));
            FetchResponse response = consumer.fetch(request.build());
            for (TopicAndPartition p : List.copyOf(next.keySet())) {
                if (response.errorCode(p.topic(), p.partition()) != 0)
                    throw new IllegalStateException("fetch: error " + response.errorCode(p.topic(), p.partition()));
                for (MessageAndOffset m : response.messageSet(p.topic(), p.partition())) {
                    if (m.offset() < next.get(p) || left == 0) continue;
                    byte[] key = m.message().hasKey() ? bytes(m.message().key()) : null;
                    add(read, p.partition(), m.offset(), key, bytes(m.message().payload()));
                    next.put(p, m.offset() + 1);
                    left--;
                }
            }
        }
    }

    /** The consumer that finds its brokers, and the other members of its group, in ZooKeeper. */
    static void stream(String bootstrap, JsonNode plan, JsonNode round, String storage, ObjectNode seen) throws Exception {
        String topic = round.get("topic").asText(), group = round.get("group").asText();
        int first = round.get("first").asInt(), total = round.get("total").asInt();
        Properties config = new Properties();
        config.put("zookeeper.connect", plan.get("zookeeper").asText());
        config.put("group.id", group);
        config.put("auto.offset.reset", "smallest");
        config.put("auto.commit.enable", "false");
        config.put("offsets.storage", storage);
        config.put("dual.commit.enabled", "false");
        config.put("consumer.timeout.ms", String.valueOf(TIMEOUT));
        ArrayNode read = seen.putArray("read");
        streamOnce(config, topic, first, read);
        ObjectNode committed = seen.putObject("committed"), ends = seen.putObject("ends");
        SimpleConsumer consumer = connect(bootstrap);
        short version = (short) (storage.equals("kafka") ? 1 : 0);
        for (int p = 0; p < round.get("partitions").asInt(); p++) {
            TopicAndPartition place = new TopicAndPartition(topic, p);
            var found = consumer.fetchOffsets(new OffsetFetchRequest(group, List.of(place), version, 0, CLIENT));
            committed.put(String.valueOf(p), found.offsets().get(place).offset());
            ends.put(String.valueOf(p), offset(consumer, place, kafka.api.OffsetRequest.LatestTime()));
        }
        consumer.close();
        streamOnce(config, topic, total - first, read);
    }

    static void streamOnce(Properties config, String topic, int count, ArrayNode read) {
        ConsumerConnector connector = Consumer.createJavaConsumerConnector(new ConsumerConfig(config));
        ConsumerIterator<byte[], byte[]> messages =
            connector.createMessageStreams(Map.of(topic, 1)).get(topic).get(0).iterator();
        try {
            for (int n = 0; n < count && messages.hasNext(); n++) {
                MessageAndMetadata<byte[], byte[]> m = messages.next();
                add(read, m.partition(), m.offset(), m.key(), m.message());
            }
        } catch (ConsumerTimeoutException e) {
            // What is missing is reported by the check of what was read.
        }
        connector.commitOffsets();
        connector.shutdown();
    }

    static void add(ArrayNode read, int partition, long offset, byte[] key, byte[] value) {
        ObjectNode item = read.addObject().put("partition", partition).put("offset", offset);
        item.put("timestamp", -1).put("key", key).put("value", value).putArray("headers");
    }

    static byte[] bytes(ByteBuffer buffer) {
        if (buffer == null) return null;
        byte[] all = new byte[buffer.remaining()];
        buffer.get(all);
        return all;
    }

    static byte[] bytes(JsonNode text) throws Exception {
        return text.isNull() ? null : text.binaryValue();
    }
}
