import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Encodes messages with Apache Kafka's own classes.
 *
 * <p>Each line of the input is a class, a version and the fields as JSON, separated by tabs; each
 * line of the output is the message in hex.
 *
 * <p>java -cp 'LIBS/*' KafkaBytes.java
 */
public class KafkaBytes {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader input =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] parts = line.split("\t", 3);
            short version = Short.parseShort(parts[1]);
            Class<?> converter = Class.forName(parts[0] + "JsonConverter");
            Message message =
                    (Message)
                            converter
                                    .getMethod("read", JsonNode.class, short.class)
                                    .invoke(null, mapper.readTree(parts[2]), version);
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
            message.write(new ByteBufferAccessor(buffer), cache, version);
            System.out.println(HexFormat.of().formatHex(buffer.array()));
        }
    }
}
