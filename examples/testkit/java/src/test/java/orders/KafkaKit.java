package orders;

import java.io.BufferedReader;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * A cluster of Odradek for tests: starts `odradek testkit` and calls its verbs over HTTP.
 *
 * <p>Arguments and results are JSON texts, so that this needs no library.
 */
final class KafkaKit implements AutoCloseable {
    private final Process process;
    private final HttpClient http = HttpClient.newHttpClient();
    private final String url;
    final String bootstrap;

    /** Start a cluster; when this returns, its brokers serve. */
    KafkaKit(String... options) throws IOException {
        var command = new ArrayList<String>();
        command.add(Optional.ofNullable(System.getenv("ODRADEK")).orElse("odradek"));
        command.addAll(List.of("testkit", "--until-eof"));
        command.addAll(List.of(options));
        // Its standard input is closed with this process, which ends it.
        process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        BufferedReader output = process.inputReader();
        String line = output.readLine();
        if (line == null) {
            throw new IOException("odradek testkit ended while it was starting");
        }
        url = field(line, "url");
        bootstrap = field(line, "bootstrap");
    }

    /** Call a verb with its arguments, a JSON object; its result, also JSON. */
    String call(String verb, String arguments) throws IOException, InterruptedException {
        var request = HttpRequest.newBuilder(URI.create(url + "/" + verb))
            .header("Content-Type", "application/json")
            .POST(HttpRequest.BodyPublishers.ofString(arguments))
            .build();
        var response = http.send(request, HttpResponse.BodyHandlers.ofString());
        String answer = response.body().strip();
        switch (response.statusCode()) {
            case 200:
                return answer.substring("{\"result\": ".length(), answer.length() - 1);
            case 422: // an assertion failed
                throw new AssertionError(answer.replace("\\n", "\n"));
            default:
                throw new IOException(verb + ": " + answer);
        }
    }

    /** End the cluster; nothing of it is left. */
    @Override
    public void close() throws IOException, InterruptedException {
        process.getOutputStream().close();
        process.waitFor();
    }

    private static String field(String json, String name) {
        Matcher found = Pattern.compile('"' + name + "\": \"([^\"]*)\"").matcher(json);
        if (!found.find()) {
            throw new IllegalArgumentException(json + " has no " + name);
        }
        return found.group(1);
    }
}
