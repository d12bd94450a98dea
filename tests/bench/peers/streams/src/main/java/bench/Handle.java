package bench;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.Map;
import java.util.Properties;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicLong;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * Kafka Streams handles a topic exactly once: it consumes, keeps a number for each key, and produces one
 * record for each event.
 *
 * <p>Each line of standard input is a JSON object: the topics, the mode ({@code count}: nothing is decoded,
 * the count of the key is produced as eight bytes; {@code sum}: envelope and payload are decoded, a field is
 * added up, and an envelope is produced), the application's id and the offsets that end it. Each is handled in
 * this same JVM, so that the first one is the warm-up of the next. The answer is a line with the seconds from
 * the first event to the commit of the last; the next line is read when all is closed.
 */
public final class Handle {
    private static final int FRAME_BYTES = 10;
    private static final String STORE = "totals";
    private static final long LIMIT_MS = 600_000;
    private static final ObjectMapper JSON = new ObjectMapper();

    private Handle() {
    }

    /** Handle what each line asks for. */
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        System.out.println("{\"ready\": true}");
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            handle(JSON.readTree(line));
        }
    }

    private static void handle(JsonNode asked) throws Exception {
        AtomicLong seen = new AtomicLong();
        AtomicLong first = new AtomicLong();
        Schema schema = new Schema.Parser().parse(asked.get("schema").toString());
        boolean sums = asked.get("mode").asText().equals("sum");
        StreamsBuilder builder = new StreamsBuilder();
        builder.addStateStore(Stores.keyValueStoreBuilder(
            Stores.persistentKeyValueStore(STORE), Serdes.String(), Serdes.Long()));
        builder.stream(asked.get("topic").asText(), Consumed.with(Serdes.String(), Serdes.ByteArray()))
            .process(() -> new Totals(sums ? new Envelopes(schema) : null, seen, first), STORE)
            .to(asked.get("out").asText(), Produced.with(Serdes.String(), Serdes.ByteArray()));
        Properties settings = settings(asked);
        try (KafkaStreams streams = new KafkaStreams(builder.build(), settings);
             Admin admin = Admin.create(Map.of("bootstrap.servers", asked.get("bootstrap").asText()))) {
            streams.start();
            waitForCommit(admin, streams, asked, seen);
            System.out.println("{\"seconds\": " + (System.nanoTime() - first.get()) / 1e9 + "}");
        }
    }

    private static Properties settings(JsonNode asked) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, asked.get("application").asText());
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, asked.get("bootstrap").asText());
        settings.put(StreamsConfig.STATE_DIR_CONFIG, asked.get("folder").asText());
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, asked.get("commit_ms").asLong());
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, asked.get("threads").asInt());
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        settings.put("auto.offset.reset", "earliest");
        return settings;
    }

    private static void waitForCommit(Admin admin, KafkaStreams streams, JsonNode asked, AtomicLong seen)
        throws Exception {
        long deadline = System.currentTimeMillis() + LIMIT_MS;
        while (seen.get() < asked.get("count").asLong() || !isCommitted(admin, asked)) {
            if (streams.state() == KafkaStreams.State.ERROR || System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("Kafka Streams is " + streams.state() + " after " + seen + " events");
            }
            Thread.sleep(2);
        }
    }

    private static boolean isCommitted(Admin admin, JsonNode asked) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> committed = admin
            .listConsumerGroupOffsets(asked.get("application").asText()).partitionsToOffsetAndMetadata().get();
        for (Map.Entry<String, JsonNode> one : asked.get("until").properties()) {
            TopicPartition place =
                new TopicPartition(asked.get("topic").asText(), Integer.parseInt(one.getKey()));
            OffsetAndMetadata offset = committed.get(place);
            if (offset == null || offset.offset() <= one.getValue().asLong()) {
                return false;
            }
        }
        return true;
    }

    /** Adds to the number of the event's key, and produces it. */
    private static final class Totals implements Processor<String, byte[], String, byte[]> {
        private final Envelopes envelopes;
        private final AtomicLong seen;
        private final AtomicLong first;
        private ProcessorContext<String, byte[]> context;
        private KeyValueStore<String, Long> store;

        Totals(Envelopes envelopes, AtomicLong seen, AtomicLong first) {
            this.envelopes = envelopes;
            this.seen = seen;
            this.first = first;
        }

        @Override
        public void init(ProcessorContext<String, byte[]> given) {
            context = given;
            store = given.getStateStore(STORE);
        }

        @Override
        public void process(Record<String, byte[]> record) {
            first.compareAndSet(0, System.nanoTime());
            Long before = store.get(record.key());
            long total = before == null ? 0 : before;
            if (envelopes == null) {
                store.put(record.key(), total + 1);
                byte[] count = Serdes.Long().serializer().serialize(null, total + 1);
                context.forward(record.withValue(count).withHeaders(new RecordHeaders()));
            } else {
                GenericRecord event = envelopes.read(record.value());
                JsonNode payload = envelopes.payload(event);
                total += payload.get("duration_ms").asLong();
                store.put(record.key(), total);
                Headers headers = new RecordHeaders();
                byte[] made = envelopes.made(event, payload, total, record.value(), headers);
                context.forward(record.withValue(made).withHeaders(headers));
            }
            seen.incrementAndGet();
        }
    }

    /** Reads and writes envelopes; one for each task, which one thread uses. */
    private static final class Envelopes {
        private final Schema schema;
        private final GenericDatumReader<GenericRecord> reader;
        private final GenericDatumWriter<GenericRecord> writer;
        private BinaryDecoder decoder;
        private BinaryEncoder encoder;

        Envelopes(Schema schema) {
            this.schema = schema;
            reader = new GenericDatumReader<>(schema);
            writer = new GenericDatumWriter<>(schema);
        }

        GenericRecord read(byte[] value) {
            try {
                decoder = DecoderFactory.get().binaryDecoder(value, FRAME_BYTES, value.length - FRAME_BYTES, decoder);
                return reader.read(null, decoder);
            } catch (IOException error) {
                throw new IllegalArgumentException(error);
            }
        }

        JsonNode payload(GenericRecord event) {
            try {
                return JSON.readTree(event.get("payload").toString());
            } catch (IOException error) {
                throw new IllegalArgumentException(error);
            }
        }

        byte[] made(GenericRecord event, JsonNode payload, long total, byte[] framed, Headers headers) {
            String id = UUID.randomUUID().toString();
            long now = System.currentTimeMillis();
            GenericRecord trace = (GenericRecord) event.get("trace");
            trace.put("parent_span_id", trace.get("span_id"));
            String span = id.substring(0, 8) + id.substring(9, 13) + id.substring(14, 18);
            trace.put("span_id", span);
            event.put("causation_id", event.get("event_id"));
            event.put("idempotency_key", "streams/" + event.get("event_id") + "/0");
            event.put("event_id", id);
            event.put("event_type", "handled.summed");
            event.put("timestamp", now);
            event.put("producer", producer());
            ObjectNode said = JSON.createObjectNode();
            said.set("call_id", payload.get("call_id"));
            said.set("tool", payload.get("tool"));
            said.put("total", total);
            event.put("payload", said.toString());
            add(headers, "ce_specversion", "1.0");
            add(headers, "ce_id", id);
            add(headers, "ce_type", "handled.summed");
            add(headers, "ce_source", "/agents/streams/streams");
            add(headers, "ce_time", Instant.ofEpochMilli(now).toString());
            add(headers, "traceparent", "00-" + trace.get("trace_id") + "-" + span + "-01");
            add(headers, "noesium_commit", "streams-1:0:1");
            return written(event, framed);
        }

        private GenericRecord producer() {
            GenericRecord made = new GenericData.Record(schema.getField("producer").schema());
            for (String name : new String[] {"agent_id", "agent_type", "instance_id"}) {
                made.put(name, "streams");
            }
            made.put("runtime_id", "local");
            return made;
        }

        private byte[] written(GenericRecord event, byte[] framed) {
            try {
                ByteArrayOutputStream out = new ByteArrayOutputStream(512);
                out.write(framed, 0, FRAME_BYTES);
                encoder = EncoderFactory.get().directBinaryEncoder(out, encoder);
                writer.write(event, encoder);
                return out.toByteArray();
            } catch (IOException error) {
                throw new IllegalArgumentException(error);
            }
        }

        private static void add(Headers headers, String name, String value) {
            headers.add(name, value.getBytes(StandardCharsets.UTF_8));
        }
    }
}
