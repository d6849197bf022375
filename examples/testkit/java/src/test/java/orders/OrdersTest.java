package orders;

import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

class OrdersTest {
    private static KafkaKit kafka;

    @BeforeAll
    static void start() throws Exception {
        kafka = new KafkaKit("--brokers", "3");
    }

    @AfterAll
    static void stop() throws Exception {
        kafka.close();
    }

    private static void send(String topic, String... values) throws Exception {
        Map<String, Object> properties = Map.of("bootstrap.servers", kafka.bootstrap);
        var text = new StringSerializer();
        try (var producer = new KafkaProducer<String, String>(properties, text, text)) {
            for (String value : values) {
                producer.send(new ProducerRecord<>(topic, value)).get();
            }
        }
    }

    @Test
    void anOrderIsWritten() throws Exception {
        kafka.call("topic", "{\"name\": \"orders\"}");
        send("orders", "paid");
        kafka.call("assert_records", "{\"topic\": \"orders\", \"expected\": [\"paid\"]}");
    }

    @Test
    void ordersSurviveTheDeathOfALeader() throws Exception {
        kafka.call("topic", "{\"name\": \"safe\"}");
        kafka.call("fail_next", "{\"api\": \"Produce\", \"error\": \"NOT_LEADER_OR_FOLLOWER\"}");
        send("safe", "one");
        String leader = kafka.call("leader", "{\"topic\": \"safe\"}");
        kafka.call("kill", "{\"broker\": " + leader + "}");
        kafka.call("wait_for",
            "{\"verb\": \"leader\", \"arguments\": {\"topic\": \"safe\"}, \"differs\": " + leader + "}");
        send("safe", "two");
        kafka.call("start", "{\"broker\": " + leader + "}");
        kafka.call("assert_exactly_once", "{\"topic\": \"safe\", \"expected\": [\"one\", \"two\"]}");
    }

    @Test
    void aFailedAssertionSaysWhatIsMissing() throws Exception {
        kafka.call("topic", "{\"name\": \"empty\"}");
        var failed = assertThrows(AssertionError.class, () -> kafka.call("assert_records",
            "{\"topic\": \"empty\", \"expected\": [\"paid\"], \"timeout_s\": 0.1}"));
        assertTrue(failed.getMessage().contains("missing: 'paid'"), failed.getMessage());
    }
}
