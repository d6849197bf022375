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
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.AppInfoParser;

/** The Java client: the client program, driven by a plan; see rounds.py. Runs against 3.9 and 4.x jars alike. */
public class Client {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        JsonNode plan = JSON.readTree(new File(args[2]));
        if (args.length > 3) secure(JSON.readTree(new File(args[3])));
        ObjectNode report = JSON.createObjectNode();
        report.put("client", "java " + AppInfoParser.getVersion());
        switch (args[1]) {
            case "round_trips" -> {
                ArrayNode rounds = report.putArray("rounds");
                for (JsonNode round : plan.get("rounds")) rounds.add(roundTrip(args[0], round));
            }
            case "administer" -> administer(args[0], plan, report);
            case "transact" -> transact(args[0], plan, report);
            case "group" -> group(args[0], plan, report);
            default -> throw new IllegalArgumentException("no scenario " + args[1]);
        }
        System.out.println(JSON.writeValueAsString(report));
    }

    /** How round trips connect; see rounds.py. */
    static final Map<String, Object> SECURITY = new HashMap<>();

    static Map<String, Object> servers(String bootstrap) {
        Map<String, Object> config = new HashMap<>(SECURITY);
        config.put("bootstrap.servers", bootstrap);
        return config;
    }

    static void secure(JsonNode asked) {
        SECURITY.put("security.protocol", asked.get("protocol").asText());
        if (asked.has("ca")) {
            SECURITY.put("ssl.truststore.type", "PEM");
            SECURITY.put("ssl.truststore.location", asked.get("ca").asText());
        }
        if (asked.has("certificate")) {
            SECURITY.put("ssl.keystore.type", "PEM");
            SECURITY.put("ssl.keystore.location", asked.get("certificate").asText());
        }
        if (!asked.has("mechanism")) return;
        String mechanism = asked.get("mechanism").asText();
        SECURITY.put("sasl.mechanism", mechanism);
        String module = "org.apache.kafka.common.security." + switch (mechanism) {
            case "PLAIN" -> "plain.PlainLoginModule";
            case "OAUTHBEARER" -> "oauthbearer.OAuthBearerLoginModule";
            default -> "scram.ScramLoginModule";
        };
        if (mechanism.equals("OAUTHBEARER")) {
            String file = asked.get("token").asText(), url = new File(file).toURI().toString();
            // Since 3.9.1 a client reads from these places only.
            System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", url);
            System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.files", file);
            SECURITY.put("sasl.oauthbearer.token.endpoint.url", url);
            SECURITY.put("sasl.login.callback.handler.class",
                "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler");
            SECURITY.put("sasl.jaas.config", module + " required;");
        } else {
            SECURITY.put("sasl.jaas.config", String.format("%s required username=\"%s\" password=\"%s\";",
                module, asked.get("user").asText(), asked.get("password").asText()));
        }
    }

    static ObjectNode roundTrip(String bootstrap, JsonNode round) throws Exception {
        String topic = round.get("topic").asText();
        int partitions = round.get("partitions").asInt();
        try (Admin admin = Admin.create(servers(bootstrap))) {
            admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all().get();
        }
        ObjectNode seen = JSON.createObjectNode().put("topic", topic);
        produce(bootstrap, topic, round, seen.putArray("sent"));
        consume(bootstrap, topic, partitions, round.get("records").size(), seen);
        return seen;
    }

    static void produce(String bootstrap, String topic, JsonNode round, ArrayNode sent) throws Exception {
        Map<String, Object> config = servers(bootstrap);
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
        Map<String, Object> config = servers(bootstrap);
        config.put("auto.offset.reset", "none");
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

    static void transact(String bootstrap, JsonNode plan, ObjectNode report) throws Exception {
        String in = plan.get("in").asText(), out = plan.get("out").asText();
        TopicPartition place = new TopicPartition(in, 0);
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap);
        try (Admin admin = Admin.create(config)) {
            admin.createTopics(List.of(new NewTopic(in, 1, (short) 1), new NewTopic(out, 1, (short) 1))).all().get();
        }
        try (var producer = transactor(bootstrap, plan)) {
            producer.beginTransaction();
            for (JsonNode value : plan.get("first")) producer.send(record(out, value.asText()));
            producer.commitTransaction();
            producer.beginTransaction();
            for (JsonNode value : plan.get("lost")) producer.send(record(out, value.asText()));
            producer.flush();
            producer.abortTransaction();
            try (var plain = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
                for (JsonNode value : plan.get("records")) plain.send(record(in, value.asText()));
            }
            Map<String, Object> member = Map.of("bootstrap.servers", bootstrap, "auto.offset.reset", "earliest",
                "group.id", plan.get("group").asText(), "enable.auto.commit", false);
            try (var consumer = new KafkaConsumer<>(member, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
                consumer.subscribe(List.of(in));
                List<String> values = new ArrayList<>();
                long deadline = System.currentTimeMillis() + 60_000;
                while (values.size() < plan.get("records").size() && System.currentTimeMillis() < deadline)
                    for (var r : consumer.poll(Duration.ofMillis(500))) values.add(new String(r.value()));
                producer.beginTransaction();
                for (String value : values) producer.send(record(out, value + "+"));
                producer.sendOffsetsToTransaction(
                    Map.of(place, new OffsetAndMetadata(consumer.position(place))), consumer.groupMetadata());
                producer.commitTransaction();
                producer.beginTransaction();
                for (JsonNode value : plan.get("lost")) producer.send(record(out, value.asText()));
                producer.flush();
                producer.sendOffsetsToTransaction(Map.of(place, new OffsetAndMetadata(0)), consumer.groupMetadata());
                producer.abortTransaction();
                report.put("position", consumer.committed(Set.of(place)).get(place).offset());
            }
            report.put("all", values(bootstrap, out, "read_uncommitted").size());
            producer.beginTransaction();
            producer.send(record(out, plan.get("fenced").asText()));
            producer.flush();
            try (var second = transactor(bootstrap, plan)) {
                producer.commitTransaction();
                report.put("fenced", false);
            } catch (ProducerFencedException | InvalidProducerEpochException e) {
                report.put("fenced", true);
            }
        }
        ArrayNode committed = report.putArray("committed");
        values(bootstrap, out, "read_committed").forEach(committed::add);
    }

    static KafkaProducer<byte[], byte[]> transactor(String bootstrap, JsonNode plan) {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "transactional.id", plan.get("id").asText());
        var producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
        producer.initTransactions();
        return producer;
    }

    static ProducerRecord<byte[], byte[]> record(String topic, String value) {
        return new ProducerRecord<>(topic, 0, null, value.getBytes());
    }

    static List<String> values(String bootstrap, String topic, String isolation) {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "isolation.level", isolation);
        TopicPartition place = new TopicPartition(topic, 0);
        List<String> values = new ArrayList<>();
        try (var consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(place));
            consumer.seekToBeginning(List.of(place));
            long end = consumer.endOffsets(List.of(place)).get(place);
            long deadline = System.currentTimeMillis() + 30_000;
            while (consumer.position(place) < end && System.currentTimeMillis() < deadline)
                for (var r : consumer.poll(Duration.ofMillis(500))) values.add(new String(r.value()));
        }
        return values;
    }

    static void administer(String bootstrap, JsonNode plan, ObjectNode report) throws Exception {
        String topic = plan.get("topic").asText();
        TopicPartition first = new TopicPartition(topic, 0);
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            Callable<Object> partitions = () ->
                admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size();
            Callable<Object> retention = () ->
                admin.describeConfigs(List.of(resource)).all().get().get(resource).get("retention.ms").value();
            Callable<Object> listed = () -> admin.listTopics().names().get().contains(topic);
            NewTopic created = new NewTopic(topic, plan.get("partitions").asInt(), (short) 1);
            created.configs(Map.of("retention.ms", plan.get("retention").asText()));
            admin.createTopics(List.of(created)).all().get();
            ArrayNode brokers = report.putArray("brokers");
            for (Node broker : admin.describeCluster().nodes().get()) brokers.add(broker.id());
            report.putPOJO("created", until(plan.get("partitions").asInt(), partitions));
            report.putPOJO("config", retention.call());
            report.putPOJO("listed", until(true, listed));
            ConfigEntry entry = new ConfigEntry("retention.ms", plan.get("altered").asText());
            admin.incrementalAlterConfigs(
                Map.of(resource, List.of(new AlterConfigOp(entry, AlterConfigOp.OpType.SET)))).all().get();
            report.putPOJO("altered", until(plan.get("altered").asText(), retention));
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(plan.get("extended").asInt()))).all().get();
            report.putPOJO("extended", until(plan.get("extended").asInt(), partitions));
            Map<String, Object> config = Map.of("bootstrap.servers", bootstrap);
            try (var producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
                for (JsonNode timestamp : plan.get("timestamps"))
                    producer.send(new ProducerRecord<>(topic, 0, timestamp.asLong(), null, new byte[5])).get();
            }
            report.put("offset_at", offset(admin, first, OffsetSpec.forTimestamp(plan.get("lookup").asLong())));
            long before = plan.get("delete_before").asLong();
            admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(before))).all().get();
            report.putPOJO("earliest", until(before, () -> offset(admin, first, OffsetSpec.earliest())));
            report.put("latest", offset(admin, first, OffsetSpec.latest()));
            admin.deleteTopics(List.of(topic)).all().get();
            report.putPOJO("listed_after", until(false, listed));
        }
    }

    static final Map<String, String> ASSIGNORS = Map.of(
        "range", "RangeAssignor", "roundrobin", "RoundRobinAssignor", "sticky", "StickyAssignor",
        "cooperative-sticky", "CooperativeStickyAssignor");

    static KafkaConsumer<byte[], byte[]> member(String bootstrap, JsonNode plan) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("group.id", plan.get("group").asText());
        config.put("enable.auto.commit", false);
        config.put("auto.offset.reset", "earliest");
        config.put("heartbeat.interval.ms", 300);
        String strategy = plan.get("strategy").asText();
        if (!strategy.isEmpty())
            config.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + ASSIGNORS.get(strategy));
        var consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of(plan.get("topic").asText()));
        return consumer;
    }

    @SafeVarargs
    static int poll(KafkaConsumer<byte[], byte[]>... consumers) {
        int found = 0;
        for (var consumer : consumers) found += consumer.poll(Duration.ofMillis(50)).count();
        return found;
    }

    static void group(String bootstrap, JsonNode plan, ObjectNode report) throws Exception {
        int partitions = plan.get("partitions").asInt();
        String topic = plan.get("topic").asText();
        int[] read = {0, 0};
        try (var first = member(bootstrap, plan)) {
            report.putPOJO("read", until(plan.get("records").asInt(), () -> read[0] += poll(first), 30));
            first.commitSync();
            try (var second = member(bootstrap, plan)) {
                report.putPOJO("shared", until(List.of(partitions / 2, partitions / 2), () -> {
                    poll(first, second);
                    return List.of(first.assignment().size(), second.assignment().size());
                }, 30));
            }
            report.putPOJO("alone", until(partitions, () -> {
                poll(first);
                return first.assignment().size();
            }, 30));
        }
        try (var third = member(bootstrap, plan)) {
            until(partitions, () -> {
                read[1] += poll(third);
                return third.assignment().size();
            }, 30);
            read[1] += poll(third);
            report.put("again", read[1]);
            ObjectNode committed = report.putObject("committed");
            for (int p = 0; p < partitions; p++) {
                TopicPartition place = new TopicPartition(topic, p);
                committed.put(String.valueOf(p), third.committed(java.util.Set.of(place)).get(place).offset());
            }
        }
    }

    static long offset(Admin admin, TopicPartition partition, OffsetSpec spec) throws Exception {
        return admin.listOffsets(Map.of(partition, spec)).partitionResult(partition).get().offset();
    }

    static Object until(Object wanted, Callable<Object> look) throws Exception { return until(wanted, look, 10); }

    static Object until(Object wanted, Callable<Object> look, int seconds) throws Exception {
        long deadline = System.currentTimeMillis() + seconds * 1000L;
        while (true) {
            Object seen = look.call();
            if (seen.equals(wanted) || System.currentTimeMillis() > deadline) return seen;
            Thread.sleep(50);
        }
    }

    static byte[] bytes(JsonNode node) { return node.isNull() ? null : Base64.getDecoder().decode(node.asText()); }

    static String text(byte[] data) { return data == null ? null : Base64.getEncoder().encodeToString(data); }
}
