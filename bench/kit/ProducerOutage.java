/* How long Java's producer gets no acknowledgement: its own defaults, a record every 3 ms.
 *
 *     ProducerOutage BOOTSTRAP TOPIC PARTITION,PARTITION... [TRANSACTIONAL_ID]
 *
 * With a transactional id each round of records is a transaction, and acknowledged when it is committed.
 * It prints `ready` when all partitions have been written to, continues until its standard input ends,
 * and then prints one line of JSON: the longest time between two acknowledgements, of each partition.
 */
import java.util.Arrays;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class ProducerOutage {
    private static final Map<Integer, Long> last = new ConcurrentHashMap<>();
    private static final Map<Integer, Long> longest = new ConcurrentHashMap<>();

    private static synchronized void acknowledged(int partition) {
        long now = System.nanoTime();
        Long before = last.put(partition, now);
        if (before != null)
            longest.merge(partition, now - before, Math::max);
    }

    public static void main(String[] arguments) throws Exception {
        int[] partitions =
                Arrays.stream(arguments[2].split(",")).mapToInt(Integer::parseInt).toArray();
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("key.serializer", ByteArraySerializer.class.getName());
        properties.put("value.serializer", ByteArraySerializer.class.getName());
        boolean isTransactional = arguments.length > 3;
        if (isTransactional)
            properties.put("transactional.id", arguments[3]);
        byte[] value = new byte[100];
        boolean isReady = false;
        Thread input = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (java.io.IOException closed) {
                // The same as the end.
            }
        });
        input.setDaemon(true);
        input.start();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties)) {
            if (isTransactional)
                producer.initTransactions();
            while (input.isAlive()) {
                if (isTransactional)
                    producer.beginTransaction();
                for (int partition : partitions)
                    producer.send(
                            new ProducerRecord<>(arguments[1], partition, null, value),
                            (found, error) -> {
                                if (error == null && !isTransactional)
                                    acknowledged(partition);
                            });
                if (isTransactional) {
                    producer.commitTransaction();
                    Arrays.stream(partitions).forEach(ProducerOutage::acknowledged);
                }
                Thread.sleep(3);
                if (!isReady && last.size() == partitions.length) {
                    isReady = true;
                    longest.clear(); // the first requests include the start
                    System.out.println("ready");
                }
            }
            Arrays.stream(partitions).forEach(ProducerOutage::acknowledged); // one that never recovered
        }
        System.out.println("{\"gaps_ms\": {" + new TreeMap<>(longest).entrySet().stream()
                .map(each -> "\"" + each.getKey() + "\": " + each.getValue() / 1e6)
                .collect(Collectors.joining(", ")) + "}}");
    }
}
