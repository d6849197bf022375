// franz-go: the client program, driven by a plan; see rounds.py.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type record struct {
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
	Timestamp int64    `json:"timestamp"`
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   [][2]any `json:"headers"`
}

type round struct {
	Topic      string   `json:"topic"`
	Partitions int32    `json:"partitions"`
	Codec      string   `json:"codec"`
	Acks       string   `json:"acks"`
	Idempotent bool     `json:"idempotent"`
	Records    []record `json:"records"`
}

type report struct {
	Topic string           `json:"topic"`
	Sent  [][2]any         `json:"sent"`
	Read  []record         `json:"read"`
	Ends  map[string]int64 `json:"ends"`
}

func main() {
	bootstrap, scenario := os.Args[1], os.Args[2]
	if scenario == "outage" { // of `./run bench failover`: without a plan
		outage(bootstrap, os.Args[3], os.Args[4])
		return
	}
	text, err := os.ReadFile(os.Args[3])
	check(err)
	secure(os.Args[4:])
	out := map[string]any{"client": "franz-go " + version("github.com/twmb/franz-go")}
	switch scenario {
	case "round_trips":
		var plan struct{ Rounds []round }
		check(json.Unmarshal(text, &plan))
		reports := []report{}
		for _, asked := range plan.Rounds {
			reports = append(reports, roundTrip(bootstrap, asked))
		}
		out["rounds"] = reports
	case "administer":
		var plan administration
		check(json.Unmarshal(text, &plan))
		administer(bootstrap, plan, out)
	case "group":
		var plan membership
		check(json.Unmarshal(text, &plan))
		group(bootstrap, plan, out)
	case "transact":
		var plan transactions
		check(json.Unmarshal(text, &plan))
		transact(bootstrap, plan, out)
	default:
		panic("no scenario " + scenario)
	}
	check(json.NewEncoder(os.Stdout).Encode(out))
}

func roundTrip(bootstrap string, asked round) report {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	seen := report{Topic: asked.Topic, Ends: map[string]int64{}}
	client, err := kgo.NewClient(append(producerOptions(asked), servers(bootstrap)...)...)
	check(err)
	defer client.Close()
	admin := kadm.NewClient(client)
	_, err = admin.CreateTopic(ctx, asked.Partitions, 1, nil, asked.Topic)
	check(err)
	seen.Sent = produce(ctx, client, asked)
	seen.Read = consume(ctx, bootstrap, asked)
	ends, err := admin.ListEndOffsets(ctx, asked.Topic)
	check(err)
	ends.Each(func(o kadm.ListedOffset) { check(o.Err); seen.Ends[strconv.Itoa(int(o.Partition))] = o.Offset })
	return seen
}

func producerOptions(asked round) []kgo.Opt {
	codec := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}[asked.Codec]
	acks := map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}[asked.Acks]
	options := []kgo.Opt{
		kgo.ProducerBatchCompression(codec), kgo.RequiredAcks(acks), kgo.ProducerLinger(5 * time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}
	if !asked.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	return options
}

func produce(ctx context.Context, client *kgo.Client, asked round) [][2]any {
	sent := make([][2]any, len(asked.Records))
	for n, r := range asked.Records {
		out := &kgo.Record{
			Topic: asked.Topic, Partition: r.Partition, Key: r.Key, Value: r.Value, Timestamp: time.UnixMilli(r.Timestamp),
		}
		for _, h := range r.Headers {
			out.Headers = append(out.Headers, kgo.RecordHeader{Key: h[0].(string), Value: headerBytes(h[1])})
		}
		client.Produce(ctx, out, func(done *kgo.Record, err error) {
			check(err)
			sent[n] = [2]any{done.Partition, done.Offset}
			if asked.Acks == "0" {
				sent[n][1] = nil
			}
		})
	}
	check(client.Flush(ctx))
	return sent
}

func consume(ctx context.Context, bootstrap string, asked round) []record {
	offsets := map[int32]kgo.Offset{}
	for p := int32(0); p < asked.Partitions; p++ {
		offsets[p] = kgo.NewOffset().AtStart()
	}
	consumed := kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{asked.Topic: offsets})
	client, err := kgo.NewClient(append(servers(bootstrap), consumed)...)
	check(err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	read := []record{}
	for len(read) < len(asked.Records) && ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			break
		}
		check(fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			item := record{r.Partition, r.Offset, r.Timestamp.UnixMilli(), r.Key, r.Value, [][2]any{}}
			for _, h := range r.Headers {
				item.Headers = append(item.Headers, [2]any{h.Key, h.Value})
			}
			read = append(read, item)
		})
	}
	return read
}

type administration struct {
	Topic        string  `json:"topic"`
	Partitions   int32   `json:"partitions"`
	Retention    string  `json:"retention"`
	Altered      string  `json:"altered"`
	Extended     int     `json:"extended"`
	Timestamps   []int64 `json:"timestamps"`
	Lookup       int64   `json:"lookup"`
	DeleteBefore int64   `json:"delete_before"`
}

func administer(bootstrap string, plan administration, report map[string]any) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	check(err)
	defer client.Close()
	admin := kadm.NewClient(client)
	partitions := func() any {
		topics, err := admin.ListTopics(ctx, plan.Topic)
		check(err)
		return len(topics[plan.Topic].Partitions)
	}
	retention := func() any {
		all, err := admin.DescribeTopicConfigs(ctx, plan.Topic)
		check(err)
		for _, config := range all[0].Configs {
			if config.Key == "retention.ms" {
				return *config.Value
			}
		}
		return nil
	}
	listed := func() any {
		topics, err := admin.ListTopics(ctx)
		check(err)
		return topics.Has(plan.Topic)
	}
	offset := func(all kadm.ListedOffsets, err error) int64 {
		check(err)
		found, _ := all.Lookup(plan.Topic, 0)
		check(found.Err)
		return found.Offset
	}
	_, err = admin.CreateTopic(ctx, plan.Partitions, 1, map[string]*string{"retention.ms": &plan.Retention}, plan.Topic)
	check(err)
	brokers, err := admin.ListBrokers(ctx)
	check(err)
	report["brokers"] = brokers.NodeIDs()
	report["created"] = until(int(plan.Partitions), partitions)
	report["config"] = retention()
	report["listed"] = until(true, listed)
	_, err = admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &plan.Altered}}, plan.Topic)
	check(err)
	report["altered"] = until(plan.Altered, retention)
	_, err = admin.UpdatePartitions(ctx, plan.Extended, plan.Topic)
	check(err)
	report["extended"] = until(plan.Extended, partitions)
	for _, timestamp := range plan.Timestamps {
		r := &kgo.Record{Topic: plan.Topic, Partition: 0, Value: []byte("value"), Timestamp: time.UnixMilli(timestamp)}
		check(client.ProduceSync(ctx, r).FirstErr())
	}
	report["offset_at"] = offset(admin.ListOffsetsAfterMilli(ctx, plan.Lookup, plan.Topic))
	before := kadm.Offsets{}
	before.Add(kadm.Offset{Topic: plan.Topic, Partition: 0, At: plan.DeleteBefore})
	_, err = admin.DeleteRecords(ctx, before)
	check(err)
	earliest := func() any { return offset(admin.ListStartOffsets(ctx, plan.Topic)) }
	report["earliest"] = until(plan.DeleteBefore, earliest)
	report["latest"] = offset(admin.ListEndOffsets(ctx, plan.Topic))
	_, err = admin.DeleteTopic(ctx, plan.Topic)
	check(err)
	report["listed_after"] = until(false, listed)
}

type membership struct {
	Topic      string `json:"topic"`
	Group      string `json:"group"`
	Partitions int    `json:"partitions"`
	Records    int    `json:"records"`
}

// A member polls in the background until it is closed; what it holds and has read is counted.
type member struct {
	client *kgo.Client
	lock   sync.Mutex
	held   map[int32]bool
	read   int
}

func newMember(bootstrap string, plan membership) *member {
	m := &member{held: map[int32]bool{}}
	change := func(hold bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			m.lock.Lock()
			defer m.lock.Unlock()
			for _, p := range partitions[plan.Topic] {
				if hold {
					m.held[p] = true
				} else {
					delete(m.held, p)
				}
			}
		}
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap), kgo.ConsumerGroup(plan.Group), kgo.ConsumeTopics(plan.Topic),
		kgo.DisableAutoCommit(), kgo.HeartbeatInterval(300*time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.OnPartitionsAssigned(change(true)), kgo.OnPartitionsRevoked(change(false)), kgo.OnPartitionsLost(change(false)),
	)
	check(err)
	m.client = client
	go func() {
		for {
			fetches := client.PollFetches(context.Background())
			if fetches.IsClientClosed() {
				return
			}
			m.lock.Lock()
			m.read += fetches.NumRecords()
			m.lock.Unlock()
		}
	}()
	return m
}

func (m *member) counts() (held, read int) {
	m.lock.Lock()
	defer m.lock.Unlock()
	return len(m.held), m.read
}

func group(bootstrap string, plan membership, report map[string]any) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	first := newMember(bootstrap, plan)
	report["read"] = until(plan.Records, func() any { _, read := first.counts(); return read })
	check(first.client.CommitUncommittedOffsets(ctx))
	second := newMember(bootstrap, plan)
	report["shared"] = until([2]int{plan.Partitions / 2, plan.Partitions / 2}, func() any {
		one, _ := first.counts()
		other, _ := second.counts()
		return [2]int{one, other}
	})
	second.client.Close()
	report["alone"] = until(plan.Partitions, func() any { held, _ := first.counts(); return held })
	first.client.Close()
	third := newMember(bootstrap, plan)
	until(plan.Partitions, func() any { held, _ := third.counts(); return held })
	time.Sleep(300 * time.Millisecond)
	_, again := third.counts()
	report["again"] = again
	committed := map[string]int64{}
	offsets, err := kadm.NewClient(third.client).FetchOffsets(ctx, plan.Group)
	check(err)
	offsets.Each(func(o kadm.OffsetResponse) { check(o.Err); committed[strconv.Itoa(int(o.Partition))] = o.At })
	report["committed"] = committed
	third.client.Close()
}

type transactions struct {
	In      string   `json:"in"`
	Out     string   `json:"out"`
	Group   string   `json:"group"`
	ID      string   `json:"id"`
	First   []string `json:"first"`
	Lost    []string `json:"lost"`
	Records []string `json:"records"`
	Fenced  string   `json:"fenced"`
}

func transact(bootstrap string, plan transactions, report map[string]any) {
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	plain, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	check(err)
	defer plain.Close()
	admin := kadm.NewClient(plain)
	_, err = admin.CreateTopics(ctx, 1, 1, nil, plan.In, plan.Out)
	check(err)
	// The positions of what it has polled go with its next commit.
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(bootstrap), kgo.TransactionalID(plan.ID), kgo.ConsumerGroup(plan.Group), kgo.ConsumeTopics(plan.In),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
	)
	check(err)
	defer session.Close()
	end := func(how kgo.TransactionEndTry) {
		committed, err := session.End(ctx, how)
		check(err)
		if committed != bool(how) {
			panic("the transaction ended otherwise")
		}
	}
	write := func(topic string, values []string, produce func(context.Context, ...*kgo.Record) kgo.ProduceResults) {
		for _, value := range values {
			check(produce(ctx, &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr())
		}
	}
	check(session.Begin())
	write(plan.Out, plan.First, session.ProduceSync)
	end(kgo.TryCommit)
	check(session.Begin())
	write(plan.Out, plan.Lost, session.ProduceSync)
	end(kgo.TryAbort)
	write(plan.In, plan.Records, plain.ProduceSync)
	values := []string{}
	for len(values) < len(plan.Records) {
		fetches := session.PollFetches(ctx)
		check(fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) { values = append(values, string(r.Value)+"+") })
	}
	check(session.Begin())
	write(plan.Out, values, session.ProduceSync)
	end(kgo.TryCommit)
	check(session.Begin())
	write(plan.Out, plan.Lost, session.ProduceSync)
	end(kgo.TryAbort)
	offsets, err := admin.FetchOffsets(ctx, plan.Group)
	check(err)
	position, _ := offsets.Lookup(plan.In, 0)
	report["position"] = position.At
	report["all"] = len(outcomes(ctx, bootstrap, plan.Out, kgo.ReadUncommitted()))
	check(session.Begin())
	write(plan.Out, []string{plan.Fenced}, session.ProduceSync)
	second, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.TransactionalID(plan.ID))
	check(err)
	defer second.Close()
	check(second.BeginTransaction())
	write(plan.Out, []string{plan.Fenced}, second.ProduceSync) // it asks for its epoch when it writes
	committed, err := session.End(ctx, kgo.TryCommit)
	report["fenced"] = err != nil && !committed
	check(second.EndTransaction(ctx, kgo.TryAbort))
	report["committed"] = outcomes(ctx, bootstrap, plan.Out, kgo.ReadCommitted())
}

// The values of partition 0 from its beginning to its end, when no transaction is open any more.
func outcomes(ctx context.Context, bootstrap, topic string, level kgo.IsolationLevel) []string {
	start := map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap), kgo.ConsumePartitions(start), kgo.FetchIsolationLevel(level), kgo.KeepControlRecords(),
	)
	check(err)
	defer client.Close()
	admin := kadm.NewClient(client)
	var end int64
	until(true, func() any {
		ends, err := admin.ListEndOffsets(ctx, topic)
		check(err)
		stable, err := admin.ListCommittedOffsets(ctx, topic)
		check(err)
		last, _ := ends.Lookup(topic, 0)
		decided, _ := stable.Lookup(topic, 0)
		end = last.Offset
		return decided.Offset == end
	})
	values := []string{}
	for next := int64(0); next < end; {
		fetches := client.PollFetches(ctx)
		check(fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			next = r.Offset + 1
			if !r.Attrs.IsControl() {
				values = append(values, string(r.Value))
			}
		})
	}
	return values
}

func until(wanted any, look func() any) any {
	deadline := time.Now().Add(30 * time.Second)
	for {
		seen := look()
		if seen == wanted || time.Now().After(deadline) {
			return seen
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func headerBytes(value any) []byte {
	if value == nil {
		return nil
	}
	text, _ := json.Marshal(value)
	var data []byte
	check(json.Unmarshal(text, &data))
	return data
}

func version(module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, dependency := range info.Deps {
		if dependency.Path == module {
			return dependency.Version
		}
	}
	return "?"
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		panic(err)
	}
}
