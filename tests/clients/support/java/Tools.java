import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.security.Permission;
import java.security.Policy;
import java.security.ProtectionDomain;
import java.util.Base64;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import org.apache.kafka.common.utils.Exit;
import org.apache.zookeeper.util.ServiceUtils;

/**
 * Kafka's command-line tools, one after the other in one process, for a process takes a second to
 * begin. A line on stdin is one call: how many milliseconds it may take, then in base64 a class,
 * what stands on its stdin, and its arguments. The answer is one line: exit code ("timeout" if it
 * had to be left alone), stdout, stderr, in base64 too.
 */
public class Tools {
    static final class Ended extends Error {
        Ended() {
            super("the tool has ended", null, false, false);
        }
    }

    static final class Call {
        ByteArrayInputStream in = new ByteArrayInputStream(new byte[0]);
        final ByteArrayOutputStream out = new ByteArrayOutputStream();
        final ByteArrayOutputStream err = new ByteArrayOutputStream();
        final CountDownLatch ended = new CountDownLatch(1);
        byte[] said;
        byte[] complained;
        String code;

        synchronized void end(String exitCode) {
            if (code != null) {
                return;
            }
            System.out.flush();
            System.err.flush();
            code = exitCode;
            said = out.toByteArray();
            complained = err.toByteArray();
            ended.countDown();
        }
    }

    /** Whose thread it is, and whose the threads are that it starts: a call that has ended may go on. */
    static final InheritableThreadLocal<Call> CURRENT = new InheritableThreadLocal<>() {
        @Override
        protected Call initialValue() {
            return new Call();
        }
    };

    /** Streams that are always those of the call: Scala's console keeps what it finds first. */
    static PrintStream stream(Function<Call, OutputStream> of) throws Exception {
        return new PrintStream(new OutputStream() {
            @Override
            public void write(int octet) throws IOException {
                of.apply(CURRENT.get()).write(octet);
            }

            @Override
            public void write(byte[] bytes, int from, int count) throws IOException {
                of.apply(CURRENT.get()).write(bytes, from, count);
            }
        }, true, "UTF-8");
    }

    static final InputStream IN = new InputStream() {
        @Override
        public int read() {
            return CURRENT.get().in.read();
        }

        @Override
        public int read(byte[] bytes, int from, int count) {
            return CURRENT.get().in.read(bytes, from, count);
        }
    };

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true);
        BufferedReader calls =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        System.setOut(stream(call -> call.out));
        System.setErr(stream(call -> call.err));
        System.setIn(IN);
        Exit.setExitProcedure((code, message) -> {
            CURRENT.get().end(String.valueOf(code));
            throw new Ended();
        });
        Exit.setHaltProcedure((code, message) -> {
            CURRENT.get().end(String.valueOf(code));
            throw new Ended();
        });
        Exit.setShutdownHookAdder((name, hook) -> { });
        ServiceUtils.setSystemExitProcedure(code -> {
            CURRENT.get().end(String.valueOf(code));
            throw new Ended();
        });
        // A manager is there for its one question; everything is allowed.
        Policy.setPolicy(new Policy() {
            @Override
            public boolean implies(ProtectionDomain domain, Permission permission) {
                return true;
            }
        });
        System.setSecurityManager(new SecurityManager() {
            @Override
            public void checkExit(int code) {
                CURRENT.get().end(String.valueOf(code));
                throw new Ended();
            }

            @Override
            public void checkPermission(Permission permission) { }
        });
        String line;
        while ((line = calls.readLine()) != null) {
            String[] words = line.split(" ");
            Call call = play(Long.parseLong(words[0]), words);
            answers.println(
                call.code + " " + encoded(call.said) + " " + encoded(call.complained));
        }
        System.setSecurityManager(null);
        Runtime.getRuntime().halt(0);
    }

    static Call play(long timeoutMs, String[] words) throws Exception {
        Call call = new Call();
        CURRENT.set(call);
        call.in = new ByteArrayInputStream(decoded(words[2]));
        String[] given = new String[words.length - 3];
        for (int at = 0; at < given.length; at++) {
            given[at] = new String(decoded(words[at + 3]), StandardCharsets.UTF_8);
        }
        Class<?> tool = Class.forName(new String(decoded(words[1]), StandardCharsets.UTF_8));
        forget(tool);
        Thread thread = new Thread(() -> run(call, tool, given), "main");
        thread.setDaemon(true);
        thread.start();
        if (!call.ended.await(timeoutMs, TimeUnit.MILLISECONDS)) {
            call.end("timeout");
        }
        return call;
    }

    static void run(Call call, Class<?> tool, String[] given) {
        try {
            tool.getMethod("main", String[].class).invoke(null, (Object) given);
            call.end("0");
        } catch (InvocationTargetException failure) {
            if (!(failure.getCause() instanceof Ended)) {
                System.err.print("Exception in thread \"main\" ");
                failure.getCause().printStackTrace(System.err);
            }
            call.end("1");
        } catch (Throwable failure) {
            failure.printStackTrace(System.err);
            call.end("1");
        }
    }

    /** A tool that was made for one run counts in a field of its class. */
    static void forget(Class<?> tool) throws Exception {
        for (Field field : tool.getDeclaredFields()) {
            if (field.getName().equals("messageCount")) {
                field.setAccessible(true);
                field.setInt(null, 0);
            }
        }
    }

    static byte[] decoded(String text) {
        return Base64.getDecoder().decode(text.equals("-") ? "" : text);
    }

    static String encoded(byte[] bytes) {
        return bytes.length == 0 ? "-" : Base64.getEncoder().encodeToString(bytes);
    }
}
