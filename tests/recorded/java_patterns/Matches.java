import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.regex.Pattern;
import java.util.regex.PatternSyntaxException;

/** Prints which texts (lines of the second file) each pattern (a line of the first) is found in (1) or matches (2).
 *  A line has the UTF-16 units as hexadecimal numbers. */
public class Matches {
    static String read(String line) {
        StringBuilder text = new StringBuilder();
        for (String unit : line.split(" ")) {
            if (!unit.isEmpty()) text.append((char) Integer.parseInt(unit, 16));
        }
        return text.toString();
    }

    public static void main(String[] files) throws Exception {
        List<String> texts = Files.readAllLines(Path.of(files[1]), StandardCharsets.US_ASCII);
        for (String line : Files.readAllLines(Path.of(files[0]), StandardCharsets.US_ASCII)) {
            Pattern pattern;
            try {
                pattern = Pattern.compile(read(line));
            } catch (PatternSyntaxException error) {
                System.out.println("refused");
                continue;
            }
            StringBuilder found = new StringBuilder();
            for (String text : texts) {
                found.append(pattern.matcher(read(text)).matches() ? '2' : pattern.matcher(read(text)).find() ? '1' : '0');
            }
            System.out.println(found);
        }
    }
}
