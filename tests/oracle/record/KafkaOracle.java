import java.io.File;
import java.io.PrintWriter;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HexFormat;
import java.util.List;
import java.util.Optional;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;
import kafka.log.UnifiedLog;
import kafka.server.BrokerTopicStats;
import kafka.server.RequestLocal;
import kafka.server.checkpoints.OffsetCheckpointFile;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.EndTransactionMarker;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.SimpleRecord;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.utils.Crc32C;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.log.AbortedTxn;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.EpochEntry;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.RecordValidationException;
import org.apache.kafka.storage.internals.log.TransactionIndex;
import org.apache.kafka.storage.internals.log.VerificationGuard;

/**
 * What Apache Kafka's own classes write, and how they judge: the fixtures beside this file.
 *
 * java -cp 'LIBS/*' KafkaOracle.java write DIR    makes them (a new release of Kafka: look at the diff)
 * java -cp 'LIBS/*' KafkaOracle.java read DIR     reads DIR/*.batch and prints what is in them
 */
public class KafkaOracle {
    static final HexFormat HEX = HexFormat.of();
    static final long NOW = 1_700_000_000_000L;
    static final TopicPartition PARTITION = new TopicPartition("t", 0);
    static final Time TIME = new FixedTime();
    static final KafkaScheduler SCHEDULER = new KafkaScheduler(1);

    static class FixedTime implements Time {
        @Override
        public long milliseconds() {
            return NOW;
        }

        @Override
        public long hiResClockMs() {
            return NOW;
        }

        @Override
        public long nanoseconds() {
            return NOW * 1_000_000;
        }

        @Override
        public void sleep(long ms) {
        }

        @Override
        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
        }
    }

    public static void main(String[] args) throws Exception {
        Path dir = Path.of(args[1]);
        if (args[0].equals("read")) {
            read(dir);
            return;
        }
        SCHEDULER.startup();
        batches(dir);
        files(dir);
        try (PrintWriter out = new PrintWriter(dir.resolve("verdicts.txt").toFile())) {
            verdicts(out);
        }
        try (PrintWriter out = new PrintWriter(dir.resolve("producer_state.txt").toFile())) {
            producerState(out);
        }
        try (PrintWriter out = new PrintWriter(dir.resolve("leader_epochs.txt").toFile())) {
            leaderEpochs(out);
        }
        SCHEDULER.shutdown();
        System.exit(0);
    }

    // ------------------------------------------------------------------------- batches

    static SimpleRecord[] records(int count) {
        List<SimpleRecord> records = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            Header[] headers = i % 5 != 0 ? new Header[0] : new Header[] {
                new RecordHeader("h" + i, ("x" + i).getBytes(StandardCharsets.UTF_8)),
                new RecordHeader("n\u00fc", null),
            };
            byte[] key = i % 7 == 0 ? null : ("key" + i).getBytes(StandardCharsets.UTF_8);
            byte[] value = i % 11 == 0 ? null : ("value " + "v".repeat(i == 5 ? 9000 : i % 90) + i).getBytes(StandardCharsets.UTF_8);
            records.add(new SimpleRecord(NOW + (i * 3701) % 100_000, key, value, headers));
        }
        return records.toArray(new SimpleRecord[0]);
    }

    static Compression compression(String name) {
        return Compression.of(name).build();
    }

    static void batches(Path dir) throws Exception {
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            write(dir, codec, MemoryRecords.withRecords(5L, compression(codec), 3, records(150)));
        }
        write(dir, "idempotent", MemoryRecords.withIdempotentRecords(
            7L, Compression.NONE, 4711L, (short) 3, 12, 5, records(20)));
        write(dir, "transactional", MemoryRecords.withTransactionalRecords(
            7L, Compression.NONE, 4711L, (short) 3, 12, 5, records(20)));
        MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(20_000),
            RecordBatch.CURRENT_MAGIC_VALUE, Compression.NONE, TimestampType.LOG_APPEND_TIME, 9L, NOW + 1);
        for (SimpleRecord record : records(20))
            builder.append(record);
        write(dir, "append_time", builder.build());
        write(dir, "commit", MemoryRecords.withEndTransactionMarker(42L, NOW, 6, 4711L, (short) 3,
            new EndTransactionMarker(ControlRecordType.COMMIT, 17)));
        write(dir, "abort", MemoryRecords.withEndTransactionMarker(42L, NOW, 6, 4711L, (short) 3,
            new EndTransactionMarker(ControlRecordType.ABORT, 17)));
    }

    static void write(Path dir, String name, MemoryRecords records) throws Exception {
        Files.write(dir.resolve(name + ".batch"), bytes(records));
    }

    static byte[] bytes(MemoryRecords records) {
        ByteBuffer buffer = records.buffer().duplicate();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return bytes;
    }

    static void read(Path dir) throws Exception {
        try (var paths = Files.list(dir)) {
            for (Path path : paths.filter(p -> p.toString().endsWith(".batch")).sorted().toList()) {
                System.out.println("# " + path.getFileName());
                MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(Files.readAllBytes(path)));
                for (RecordBatch batch : records.batches()) {
                    batch.ensureValid();
                    for (Record record : batch) {
                        StringBuilder headers = new StringBuilder();
                        for (Header header : record.headers())
                            headers.append(' ').append(header.key()).append('=').append(hex(header.value()));
                        System.out.println(record.offset() + " " + record.timestamp() + " "
                            + hex(record.hasKey() ? record.key() : null) + " "
                            + hex(record.hasValue() ? record.value() : null) + headers);
                    }
                }
            }
        }
    }

    static String hex(ByteBuffer buffer) {
        if (buffer == null)
            return "null";
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return hex(bytes);
    }

    static String hex(byte[] bytes) {
        return bytes == null ? "null" : "x" + HEX.formatHex(bytes);
    }

    // --------------------------------------------------------------------------- files

    static void files(Path dir) throws Exception {
        LogDirFailureChannel failures = new LogDirFailureChannel(1);
        new LeaderEpochCheckpointFile(dir.resolve("leader-epoch-checkpoint").toFile(), failures)
            .write(List.of(new EpochEntry(0, 0), new EpochEntry(3, 17), new EpochEntry(4, 40_000_000_000L)));
        var offsets = new scala.collection.mutable.HashMap<TopicPartition, Object>();
        offsets.put(new TopicPartition("orders", 0), 1500L);
        offsets.put(new TopicPartition("a.b_c-d", 12), 40_000_000_000L);
        File checkpoint = dir.resolve("replication-offset-checkpoint").toFile();
        new OffsetCheckpointFile(checkpoint, failures).write(offsets);
        File index = dir.resolve("00000000000000000100.txnindex").toFile();
        Files.deleteIfExists(index.toPath());
        TransactionIndex transactions = new TransactionIndex(100, index);
        transactions.append(new AbortedTxn(7, 90, 110, 95));
        transactions.append(new AbortedTxn(9, 95, 120, 111));
        transactions.append(new AbortedTxn(11, 130, 140, 141));
        transactions.close();
        // The epoch cache must not leave temporary files here.
        Files.deleteIfExists(dir.resolve("leader-epoch-checkpoint.tmp"));
    }

    // ------------------------------------------------------------------------ verdicts

    static UnifiedLog log(Path dir, Properties topic) throws Exception {
        File partition = dir.resolve("t-0").toFile();
        partition.mkdirs();
        return UnifiedLog.apply(partition, LogConfig.fromProps(Collections.emptyMap(), topic), 0, 0,
            SCHEDULER, new BrokerTopicStats(false), TIME, 900_000,
            new ProducerStateManagerConfig(86_400_000, false), 600_000, new LogDirFailureChannel(10), true,
            scala.Option.empty(), true, new ConcurrentHashMap<>(), false, LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
    }

    static LogAppendInfo append(UnifiedLog log, MemoryRecords records, AppendOrigin origin) {
        return log.appendAsLeader(records, 8, origin, MetadataVersion.latestProduction(),
            RequestLocal.NoCaching(), VerificationGuard.SENTINEL);
    }

    interface Mutation {
        void apply(ByteBuffer batch);
    }

    static void verdicts(PrintWriter out) throws Exception {
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            byte[] batch = bytes(MemoryRecords.withRecords(compression(codec), some()));
            for (String rules : List.of("", "cleanup.policy=compact", "message.timestamp.type=LogAppendTime",
                    "compression.type=uncompressed", "compression.type=gzip", "compression.type=zstd",
                    "message.timestamp.before.max.ms=1000", "message.timestamp.after.max.ms=1000",
                    "message.timestamp.type=LogAppendTime,compression.type=lz4", "max.message.bytes=100",
                    "cleanup.policy=compact,message.timestamp.after.max.ms=1")) {
                verdict(out, "plain " + codec, rules, 9, batch);
            }
            verdict(out, "old version " + codec, "", 6, batch);
            byte[] keyless = bytes(MemoryRecords.withRecords(compression(codec), keyless()));
            verdict(out, "keyless " + codec, "cleanup.policy=compact", 9, keyless);
            verdict(out, "keyless " + codec, "", 9, keyless);
            verdict(out, "two " + codec, "", 9, twice(batch));
            verdict(out, "wrong max timestamp " + codec, "", 9, signed(batch, b -> b.putLong(35, NOW + 999_999)));
            verdict(out, "count too large " + codec, "", 9, signed(batch, b -> b.putInt(57, 4).putInt(23, 3)));
            verdict(out, "count too small " + codec, "", 9, signed(batch, b -> b.putInt(57, 2).putInt(23, 1)));
        }
        byte[] batch = bytes(MemoryRecords.withRecords(Compression.NONE, some()));
        verdict(out, "empty", "", 9, new byte[0]);
        verdict(out, "eleven bytes", "", 9, head(batch, 11));
        verdict(out, "sixty bytes", "", 9, head(batch, 60));
        verdict(out, "torn", "", 9, head(batch, batch.length - 1));
        verdict(out, "trailing bytes", "", 9, concat(batch, new byte[] {1, 2, 3}));
        verdict(out, "trailing torn batch", "", 9, concat(batch, head(batch, 40)));
        verdict(out, "base offset", "", 9, set(batch, b -> b.putLong(0, 1)));
        verdict(out, "leader epoch", "", 9, set(batch, b -> b.putInt(12, 77)));
        verdict(out, "length 13", "", 9, set(batch, b -> b.putInt(8, 13)));
        verdict(out, "length negative", "", 9, set(batch, b -> b.putInt(8, -1)));
        verdict(out, "length huge", "", 9, set(batch, b -> b.putInt(8, Integer.MAX_VALUE)));
        verdict(out, "magic 0", "", 9, set(batch, b -> b.put(16, (byte) 0)));
        verdict(out, "magic 1", "", 9, set(batch, b -> b.put(16, (byte) 1)));
        verdict(out, "magic 3", "", 9, set(batch, b -> b.put(16, (byte) 3)));
        verdict(out, "crc", "", 9, set(batch, b -> b.putInt(17, 1)));
        verdict(out, "flipped value", "", 9, set(batch, b -> b.put(70, (byte) (b.get(70) ^ 4))));
        verdict(out, "count 0", "", 9, signed(batch, b -> b.putInt(57, 0)));
        verdict(out, "count -1", "", 9, signed(batch, b -> b.putInt(57, -1)));
        verdict(out, "delta -1", "", 9, signed(batch, b -> b.putInt(23, -1)));
        verdict(out, "delta off by one", "", 9, signed(batch, b -> b.putInt(23, 3)));
        verdict(out, "control", "", 9, signed(batch, b -> b.putShort(21, (short) 0x20)));
        verdict(out, "marker", "", 9, set(
            bytes(MemoryRecords.withEndTransactionMarker(0L, NOW, 6, 4711L, (short) 3,
                new EndTransactionMarker(ControlRecordType.COMMIT, 17))), b -> { }));
        verdict(out, "producer without sequence", "", 9,
            signed(batch, b -> b.putLong(43, 5).putShort(51, (short) 0).putInt(53, -1)));
        verdict(out, "producer", "", 9,
            signed(batch, b -> b.putLong(43, 5).putShort(51, (short) 0).putInt(53, 0)));
        verdict(out, "transactional", "", 9, signed(batch,
            b -> b.putLong(43, 5).putShort(51, (short) 0).putInt(53, 0).putShort(21, (short) 0x10)));
        verdict(out, "append time bit", "message.timestamp.type=LogAppendTime", 9,
            signed(batch, b -> b.putShort(21, (short) 8)));
        verdict(out, "no timestamps", "message.timestamp.before.max.ms=1000", 9,
            bytes(MemoryRecords.withRecords(Compression.NONE, new SimpleRecord(-1L, "k".getBytes(), "v".getBytes()))));
        // The first record: length at 61, attributes 62, timestamp 63, offset 64, key length 65.
        verdict(out, "record length -1", "", 9, signed(batch, b -> b.put(61, (byte) 1)));
        verdict(out, "record length + 1", "", 9, signed(batch, b -> b.put(61, (byte) (b.get(61) + 2))));
        verdict(out, "record length - 1", "", 9, signed(batch, b -> b.put(61, (byte) (b.get(61) - 2))));
        verdict(out, "key length + 1", "", 9, signed(batch, b -> b.put(65, (byte) (b.get(65) + 2))));
        verdict(out, "key length large", "", 9, signed(batch, b -> b.put(65, (byte) 126)));
    }

    static SimpleRecord[] some() {
        return new SimpleRecord[] {
            new SimpleRecord(NOW - 5000, "a".getBytes(), "1".getBytes()),
            new SimpleRecord(NOW + 5000, "b".getBytes(), "2".repeat(60).getBytes()),
            new SimpleRecord(NOW, "c".getBytes(), null),
        };
    }

    static SimpleRecord[] keyless() {
        return new SimpleRecord[] {
            new SimpleRecord(NOW, "a".getBytes(), "1".getBytes()),
            new SimpleRecord(NOW, null, "2".getBytes()),
            new SimpleRecord(NOW, null, "3".getBytes()),
        };
    }

    static byte[] set(byte[] batch, Mutation mutation) {
        byte[] copy = batch.clone();
        mutation.apply(ByteBuffer.wrap(copy));
        return copy;
    }

    static byte[] signed(byte[] batch, Mutation mutation) {
        byte[] copy = set(batch, mutation);
        ByteBuffer.wrap(copy).putInt(17, (int) Crc32C.compute(copy, 21, copy.length - 21));
        return copy;
    }

    static byte[] head(byte[] bytes, int length) {
        return java.util.Arrays.copyOf(bytes, length);
    }

    static byte[] twice(byte[] bytes) {
        return concat(bytes, bytes);
    }

    static byte[] concat(byte[] one, byte[] other) {
        return ByteBuffer.allocate(one.length + other.length).put(one).put(other).array();
    }

    /** One line: name | topic's configuration | API version | batch | error | faulty records or stored bytes. */
    static void verdict(PrintWriter out, String name, String rules, int apiVersion, byte[] batch) throws Exception {
        Path dir = Files.createTempDirectory("oracle");
        Properties topic = new Properties();
        for (String rule : rules.isEmpty() ? new String[0] : rules.split(","))
            topic.setProperty(rule.split("=")[0], rule.split("=")[1]);
        UnifiedLog log = log(dir, topic);
        String error;
        String detail = "";
        try {
            MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(batch.clone()));
            ProduceRequest.validateRecords((short) apiVersion, records);
            append(log, records, AppendOrigin.CLIENT);
            log.flush(false);
            error = Errors.NONE.name();
            detail = HEX.formatHex(Files.readAllBytes(dir.resolve("t-0/00000000000000000000.log")));
        } catch (RecordValidationException e) {
            error = Errors.forException(e.invalidException()).name();
            List<String> indexes = new ArrayList<>();
            e.recordErrors().forEach(r -> indexes.add(r.toString().replaceAll(".*batchIndex=(\\d+).*", "$1")));
            detail = String.join(",", indexes);
        } catch (Exception e) {
            error = Errors.forException(e).name();
        }
        log.close();
        out.println(String.join("|", name, rules, "" + apiVersion, HEX.formatHex(batch), error, detail));
    }

    // ------------------------------------------------------------------ producer state

    /**
     * A log, and what happens to it: one line each, "what -> answer ; state after".
     * Sequences and epochs are right more often than not, or nothing would ever be accepted.
     */
    static void producerState(PrintWriter out) throws Exception {
        Random random = new Random(4711);
        Path dir = Files.createTempDirectory("oracle");
        UnifiedLog log = log(dir, new Properties());
        int producers = 4;
        int[] epochs = new int[producers];
        int[] sequences = new int[producers];
        boolean[] open = new boolean[producers];
        int[][] last = new int[producers][];
        sequences[3] = Integer.MAX_VALUE - 20;
        for (int step = 0; step < 1000; step++) {
            int id = random.nextInt(producers);
            int dice = random.nextInt(100);
            String what;
            String answer;
            if (dice < 62) {
                int epoch = epochs[id];
                int sequence = sequences[id];
                int count = 1 + random.nextInt(4);
                boolean transactional = open[id] ? random.nextInt(8) > 0 : id == 1 || id == 2;
                int odd = random.nextInt(12);
                if (odd == 0) sequence += 1 + random.nextInt(3);
                if (odd == 1) sequence = Math.max(0, sequence - 1 - random.nextInt(9));
                if (odd == 2 && epoch > 0) epoch--;
                if (odd == 3) { epoch++; sequence = random.nextInt(4) == 0 ? 3 : 0; }
                if ((odd == 4 || odd == 5) && last[id] != null) {
                    epoch = last[id][0]; sequence = last[id][1]; count = last[id][2];
                    transactional = last[id][3] == 1;
                }
                if (sequence < 0) sequence = 0;
                long timestamp = NOW + step;
                SimpleRecord[] records = new SimpleRecord[count];
                for (int i = 0; i < count; i++) records[i] = new SimpleRecord(timestamp, null, new byte[1]);
                MemoryRecords batch = transactional
                    ? MemoryRecords.withTransactionalRecords(Compression.NONE, id, (short) epoch, sequence, records)
                    : MemoryRecords.withIdempotentRecords(Compression.NONE, id, (short) epoch, sequence, records);
                what = String.format("data %d %d %d %d %d %d", id, epoch, sequence, count, transactional ? 1 : 0, timestamp);
                long before = log.logEndOffset();
                try {
                    LogAppendInfo info = append(log, batch, AppendOrigin.CLIENT);
                    boolean duplicate = log.logEndOffset() == before;
                    answer = (duplicate ? "duplicate " : "ok ") + info.firstOffset();
                    if (!duplicate) {
                        if (random.nextInt(3) == 0) last[id] = new int[] {epoch, sequence, count, transactional ? 1 : 0};
                        epochs[id] = epoch;
                        sequences[id] = (int) (((long) sequence + count) & Integer.MAX_VALUE);
                        open[id] |= transactional;
                    }
                } catch (Exception e) {
                    answer = Errors.forException(e).name();
                }
            } else if (dice < 85) {
                int epoch = epochs[id] + (random.nextInt(6) == 0 ? random.nextInt(3) - 1 : 0);
                int coordinator = Math.max(0, step / 300 + (random.nextInt(8) == 0 ? -1 : 0));
                boolean commit = random.nextBoolean();
                if (epoch < 0) epoch = 0;
                what = String.format("marker %d %d %d %d %d", id, epoch, coordinator, commit ? 1 : 0, NOW + step);
                MemoryRecords marker = MemoryRecords.withEndTransactionMarker(0L, NOW + step, 0, id, (short) epoch,
                    new EndTransactionMarker(commit ? ControlRecordType.COMMIT : ControlRecordType.ABORT, coordinator));
                try {
                    answer = "ok " + append(log, marker, AppendOrigin.COORDINATOR).firstOffset();
                    if (epoch != epochs[id]) sequences[id] = 0;
                    epochs[id] = epoch;
                    open[id] = false;
                } catch (Exception e) {
                    answer = Errors.forException(e).name();
                }
            } else {
                long highWatermark = log.highWatermark()
                    + (long) (random.nextDouble() * (log.logEndOffset() - log.highWatermark() + 1));
                what = "hw " + highWatermark;
                log.updateHighWatermark(highWatermark);
                answer = "ok";
            }
            out.println(what + " -> " + answer + " ; " + log.lastStableOffset());
        }
        log.close(); // takes a snapshot
        try (var files = Files.list(dir.resolve("t-0"))) {
            Path snapshot = files.filter(p -> p.toString().endsWith(".snapshot")).max(Path::compareTo).get();
            out.println("snapshot " + HEX.formatHex(Files.readAllBytes(snapshot)));
        }
        out.println("txnindex " + HEX.formatHex(Files.readAllBytes(dir.resolve("t-0/00000000000000000000.txnindex"))));
    }

    // ------------------------------------------------------------------- leader epochs

    static void leaderEpochs(PrintWriter out) throws Exception {
        Random random = new Random(815);
        Path dir = Files.createTempDirectory("oracle");
        File file = dir.resolve("leader-epoch-checkpoint").toFile();
        LeaderEpochFileCache cache = new LeaderEpochFileCache(
            PARTITION, new LeaderEpochCheckpointFile(file, new LogDirFailureChannel(1)), SCHEDULER);
        int epoch = 0;
        long end = 0;
        long start = 0;
        for (int step = 0; step < 400; step++) {
            int dice = random.nextInt(10);
            String line;
            if (dice < 4) {
                epoch = Math.max(0, epoch + random.nextInt(4) - (random.nextInt(6) == 0 ? 4 : 0));
                end += random.nextInt(20);
                cache.assign(epoch, end);
                line = "assign " + epoch + " " + end;
            } else if (dice == 4) {
                end = Math.max(start, end - random.nextInt(40));
                cache.truncateFromEndAsyncFlush(end);
                line = "end " + end;
            } else if (dice == 5) {
                start = Math.min(end, start + random.nextInt(30));
                cache.truncateFromStartAsyncFlush(start);
                line = "start " + start;
            } else if (dice < 9) {
                int asked = random.nextInt(epoch + 4) - 1;
                var answer = cache.endOffsetFor(asked, end);
                line = "ask " + asked + " " + end + " " + answer.getKey() + " " + answer.getValue();
            } else {
                long offset = random.nextInt((int) end + 2);
                line = "at " + offset + " " + cache.epochForOffset(offset).orElse(-1);
            }
            StringBuilder entries = new StringBuilder();
            for (EpochEntry entry : cache.epochEntries())
                entries.append(' ').append(entry.epoch).append(':').append(entry.startOffset);
            out.println(line + " ;" + entries);
        }
    }
}
