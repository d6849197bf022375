// sarama: the client program, driven by a plan; see rounds.py.
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

	"github.com/IBM/sarama"
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
	text, err := os.ReadFile(os.Args[3])
	check(err)
	security.load(os.Args[4:])
	out := map[string]any{"client": "sarama " + version("github.com/IBM/sarama")}
	switch scenario {
	case "round_trips":
		var plan struct{ Rounds []round }
		check(json.Unmarshal(text, &plan))
		reports := []report{}
		for _, asked := range plan.Rounds {
			reports = append(reports, roundTrip(bootstrap, asked))
		}
		out["rounds"] = reports
	case "old_round_trips":
		var plan struct {
			Version string
			Rounds  []oldRound
		}
		check(json.Unmarshal(text, &plan))
		reports := []oldReport{}
		for _, asked := range plan.Rounds {
			reports = append(reports, oldRoundTrip(bootstrap, plan.Version, asked))
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
	seen := report{Topic: asked.Topic, Ends: map[string]int64{}}
	c := config(asked)
	security.apply(c)
	c.Consumer.Return.Errors = true
	client, err := sarama.NewClient([]string{bootstrap}, c)
	check(err)
	defer client.Close()
	admin, err := sarama.NewClusterAdminFromClient(client)
	check(err)
	check(admin.CreateTopic(asked.Topic, &sarama.TopicDetail{NumPartitions: asked.Partitions, ReplicationFactor: 1}, false))
	check(client.RefreshMetadata(asked.Topic))
	seen.Sent = produce(client, asked)
	starts := map[int32]int64{}
	for p := int32(0); p < asked.Partitions; p++ {
		starts[p] = sarama.OffsetOldest
	}
	seen.Read = consume(client, asked.Topic, starts, len(asked.Records))
	for p := int32(0); p < asked.Partitions; p++ {
		end, err := client.GetOffset(asked.Topic, p, sarama.OffsetNewest)
		check(err)
		seen.Ends[strconv.Itoa(int(p))] = end
	}
	return seen
}

func config(asked round) *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.V3_9_0_0
	check(c.Producer.Compression.UnmarshalText([]byte(asked.Codec)))
	c.Producer.RequiredAcks = map[string]sarama.RequiredAcks{
		"0": sarama.NoResponse, "1": sarama.WaitForLocal, "all": sarama.WaitForAll,
	}[asked.Acks]
	c.Producer.Return.Successes = true
	c.Producer.Partitioner = sarama.NewManualPartitioner
	c.Producer.Flush.Frequency = 5 * time.Millisecond
	c.Consumer.MaxWaitTime = 100 * time.Millisecond // closing a partition waits for its fetch
	if asked.Idempotent {
		c.Producer.Idempotent = true
		c.Net.MaxOpenRequests = 1
	}
	return c
}

func produce(client sarama.Client, asked round) [][2]any {
	producer, err := sarama.NewAsyncProducerFromClient(client)
	check(err)
	go func() {
		for n, r := range asked.Records {
			out := &sarama.ProducerMessage{
				Topic: asked.Topic, Partition: r.Partition, Timestamp: time.UnixMilli(r.Timestamp), Metadata: n,
			}
			if r.Key != nil {
				out.Key = sarama.ByteEncoder(r.Key)
			}
			if r.Value != nil {
				out.Value = sarama.ByteEncoder(r.Value)
			}
			for _, h := range r.Headers {
				out.Headers = append(out.Headers, sarama.RecordHeader{Key: []byte(h[0].(string)), Value: headerBytes(h[1])})
			}
			producer.Input() <- out
		}
	}()
	sent := make([][2]any, len(asked.Records))
	for range asked.Records {
		select {
		case done := <-producer.Successes():
			n := done.Metadata.(int)
			sent[n] = [2]any{done.Partition, done.Offset}
			if asked.Acks == "0" {
				sent[n][1] = nil
			}
		case failed := <-producer.Errors():
			check(failed)
		case <-time.After(30 * time.Second):
			panic("records were not delivered")
		}
	}
	check(producer.Close())
	return sent
}

// So many records from these offsets on, or those that arrive within thirty seconds.
func consume(client sarama.Client, topic string, starts map[int32]int64, count int) []record {
	consumer, err := sarama.NewConsumerFromClient(client)
	check(err)
	messages := make(chan *sarama.ConsumerMessage)
	failures := make(chan *sarama.ConsumerError, len(starts))
	done := make(chan struct{})
	for p, start := range starts {
		partition, err := consumer.ConsumePartition(topic, p, start)
		check(err)
		defer partition.Close()
		go func() {
			for m := range partition.Messages() {
				select {
				case messages <- m:
				case <-done:
				}
			}
		}()
		go func() {
			for failure := range partition.Errors() {
				select {
				case failures <- failure:
				case <-done:
				}
			}
		}()
	}
	defer close(done)
	read := []record{}
	timeout := time.After(30 * time.Second)
	for len(read) < count {
		select {
		case m := <-messages:
			item := record{m.Partition, m.Offset, -1, m.Key, m.Value, [][2]any{}}
			if !m.Timestamp.IsZero() {
				item.Timestamp = m.Timestamp.UnixMilli()
			}
			for _, h := range m.Headers {
				item.Headers = append(item.Headers, [2]any{string(h.Key), h.Value})
			}
			read = append(read, item)
		case failure := <-failures:
			check(failure)
		case <-timeout:
			return read
		}
	}
	return read
}

type administration struct {
	Topic        string  `json:"topic"`
	Partitions   int32   `json:"partitions"`
	Retention    string  `json:"retention"`
	Altered      string  `json:"altered"`
	Extended     int32   `json:"extended"`
	Timestamps   []int64 `json:"timestamps"`
	Lookup       int64   `json:"lookup"`
	DeleteBefore int64   `json:"delete_before"`
}

func administer(bootstrap string, plan administration, report map[string]any) {
	c := config(round{Codec: "none", Acks: "all"})
	client, err := sarama.NewClient([]string{bootstrap}, c)
	check(err)
	defer client.Close()
	admin, err := sarama.NewClusterAdminFromClient(client)
	check(err)
	partitions := func() any {
		topics, err := admin.DescribeTopics([]string{plan.Topic})
		check(err)
		return len(topics[0].Partitions)
	}
	retention := func() any {
		entries, err := admin.DescribeConfig(sarama.ConfigResource{
			Type: sarama.TopicResource, Name: plan.Topic, ConfigNames: []string{"retention.ms"},
		})
		check(err)
		return entries[0].Value
	}
	listed := func() any {
		topics, err := admin.ListTopics()
		check(err)
		_, found := topics[plan.Topic]
		return found
	}
	offset := func(time int64) int64 {
		found, err := client.GetOffset(plan.Topic, 0, time)
		check(err)
		return found
	}
	detail := &sarama.TopicDetail{
		NumPartitions: plan.Partitions, ReplicationFactor: 1,
		ConfigEntries: map[string]*string{"retention.ms": &plan.Retention},
	}
	check(admin.CreateTopic(plan.Topic, detail, false))
	brokers, _, err := admin.DescribeCluster()
	check(err)
	ids := []int32{}
	for _, broker := range brokers {
		ids = append(ids, broker.ID())
	}
	report["brokers"] = ids
	report["created"] = until(int(plan.Partitions), partitions)
	report["config"] = retention()
	report["listed"] = until(true, listed)
	change := map[string]sarama.IncrementalAlterConfigsEntry{
		"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &plan.Altered},
	}
	check(admin.IncrementalAlterConfig(sarama.TopicResource, plan.Topic, change, false))
	report["altered"] = until(plan.Altered, retention)
	check(admin.CreatePartitions(plan.Topic, plan.Extended, nil, false))
	report["extended"] = until(int(plan.Extended), partitions)
	check(client.RefreshMetadata(plan.Topic))
	producer, err := sarama.NewSyncProducerFromClient(client)
	check(err)
	for _, timestamp := range plan.Timestamps {
		_, _, err := producer.SendMessage(&sarama.ProducerMessage{
			Topic: plan.Topic, Partition: 0, Value: sarama.StringEncoder("value"), Timestamp: time.UnixMilli(timestamp),
		})
		check(err)
	}
	check(producer.Close())
	report["offset_at"] = offset(plan.Lookup)
	check(admin.DeleteRecords(plan.Topic, map[int32]int64{0: plan.DeleteBefore}))
	report["earliest"] = until(plan.DeleteBefore, func() any { return offset(sarama.OffsetOldest) })
	report["latest"] = offset(sarama.OffsetNewest)
	check(admin.DeleteTopic(plan.Topic))
	report["listed_after"] = until(false, listed)
}

type membership struct {
	Topic      string `json:"topic"`
	Group      string `json:"group"`
	Partitions int    `json:"partitions"`
	Records    int    `json:"records"`
}

// A member consumes in the background until it is closed; what it holds and has read is counted.
type member struct {
	group sarama.ConsumerGroup
	lock  sync.Mutex
	held  int
	read  int
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.held = 0
	for _, partitions := range session.Claims() {
		m.held += len(partitions)
	}
	return nil
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		session.MarkMessage(message, "")
		m.lock.Lock()
		m.read++
		m.lock.Unlock()
	}
	session.Commit()
	return nil
}

func newMember(bootstrap string, plan membership) *member {
	c := config(round{Codec: "none", Acks: "all"})
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Enable = false
	c.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
	joined, err := sarama.NewConsumerGroup([]string{bootstrap}, plan.Group, c)
	check(err)
	m := &member{group: joined}
	go func() {
		for joined.Consume(context.Background(), []string{plan.Topic}, m) == nil {
		}
	}()
	return m
}

func (m *member) counts() (held, read int) {
	m.lock.Lock()
	defer m.lock.Unlock()
	return m.held, m.read
}

func group(bootstrap string, plan membership, report map[string]any) {
	first := newMember(bootstrap, plan)
	report["read"] = until(plan.Records, func() any { _, read := first.counts(); return read })
	second := newMember(bootstrap, plan) // a rebalance ends the first's claims, and so commits them
	report["shared"] = until([2]int{plan.Partitions / 2, plan.Partitions / 2}, func() any {
		one, _ := first.counts()
		other, _ := second.counts()
		return [2]int{one, other}
	})
	check(second.group.Close())
	report["alone"] = until(plan.Partitions, func() any { held, _ := first.counts(); return held })
	check(first.group.Close())
	third := newMember(bootstrap, plan)
	until(plan.Partitions, func() any { held, _ := third.counts(); return held })
	time.Sleep(300 * time.Millisecond)
	_, again := third.counts()
	report["again"] = again
	admin, err := sarama.NewClusterAdmin([]string{bootstrap}, config(round{Codec: "none", Acks: "all"}))
	check(err)
	asked := []int32{}
	for p := 0; p < plan.Partitions; p++ {
		asked = append(asked, int32(p))
	}
	offsets, err := admin.ListConsumerGroupOffsets(plan.Group, map[string][]int32{plan.Topic: asked})
	check(err)
	committed := map[string]int64{}
	for p, block := range offsets.Blocks[plan.Topic] {
		committed[strconv.Itoa(int(p))] = block.Offset
	}
	report["committed"] = committed
	check(third.group.Close())
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
	servers := []string{bootstrap}
	usual := config(round{Codec: "none", Acks: "all"})
	admin, err := sarama.NewClusterAdmin(servers, usual)
	check(err)
	defer admin.Close()
	for _, topic := range []string{plan.In, plan.Out} {
		check(admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false))
	}
	plain, err := sarama.NewSyncProducer(servers, usual)
	check(err)
	defer plain.Close()
	write := func(producer sarama.SyncProducer, topic string, values ...string) {
		for _, value := range values {
			_, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(value)})
			check(err)
		}
	}
	// A record outside of transactions marks how far to read.
	read := func(level sarama.IsolationLevel) []string {
		_, end, err := plain.SendMessage(&sarama.ProducerMessage{Topic: plan.Out, Value: sarama.StringEncoder("end")})
		check(err)
		values := []string{}
		for _, message := range messages(servers, plan.Out, level, end) {
			if string(message.Value) != "end" {
				values = append(values, string(message.Value))
			}
		}
		return values
	}
	producer := transactor(servers, plan.ID)
	check(producer.BeginTxn())
	write(producer, plan.Out, plan.First...)
	check(producer.CommitTxn())
	check(producer.BeginTxn())
	write(producer, plan.Out, plan.Lost...)
	check(producer.AbortTxn())
	write(plain, plan.In, plan.Records...)
	taken := &taker{wanted: len(plan.Records)}
	consumer := config(round{Codec: "none", Acks: "all"})
	consumer.Consumer.Offsets.Initial = sarama.OffsetOldest
	consumer.Consumer.Offsets.AutoCommit.Enable = false
	consumer.Consumer.IsolationLevel = sarama.ReadCommitted
	joined, err := sarama.NewConsumerGroup(servers, plan.Group, consumer)
	check(err)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	check(joined.Consume(ctx, []string{plan.In}, taken))
	check(joined.Close())
	position := func(offset int64) map[string][]*sarama.PartitionOffsetMetadata {
		return map[string][]*sarama.PartitionOffsetMetadata{plan.In: {{Partition: 0, Offset: offset, LeaderEpoch: -1}}}
	}
	check(producer.BeginTxn())
	for _, value := range taken.values {
		write(producer, plan.Out, value+"+")
	}
	check(producer.AddOffsetsToTxn(position(int64(len(taken.values))), plan.Group))
	check(producer.CommitTxn())
	check(producer.BeginTxn())
	write(producer, plan.Out, plan.Lost...)
	check(producer.AddOffsetsToTxn(position(0), plan.Group))
	check(producer.AbortTxn())
	report["position"] = until(int64(len(plan.Records)), func() any {
		offsets, err := admin.ListConsumerGroupOffsets(plan.Group, map[string][]int32{plan.In: {0}})
		check(err)
		return offsets.GetBlock(plan.In, 0).Offset
	})
	report["all"] = len(read(sarama.ReadUncommitted))
	check(producer.BeginTxn())
	write(producer, plan.Out, plan.Fenced)
	second := transactor(servers, plan.ID)
	report["fenced"] = producer.CommitTxn() != nil && producer.TxnStatus()&sarama.ProducerTxnFlagFatalError != 0
	report["committed"] = read(sarama.ReadCommitted)
	check(second.Close())
}

func transactor(servers []string, id string) sarama.SyncProducer {
	c := config(round{Codec: "none", Acks: "all", Idempotent: true})
	c.Producer.Transaction.ID = id
	producer, err := sarama.NewSyncProducer(servers, c)
	check(err)
	return producer
}

// A taker is a member of a group until it has what it wants.
type taker struct {
	wanted int
	values []string
}

func (t *taker) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (t *taker) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (t *taker) ConsumeClaim(_ sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		t.values = append(t.values, string(message.Value))
		if len(t.values) == t.wanted {
			return nil
		}
	}
	return nil
}

// Everything in partition 0 up to an offset.
func messages(servers []string, topic string, level sarama.IsolationLevel, last int64) []*sarama.ConsumerMessage {
	c := config(round{Codec: "none", Acks: "all"})
	c.Consumer.IsolationLevel = level
	consumer, err := sarama.NewConsumer(servers, c)
	check(err)
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	check(err)
	defer partition.Close()
	read := []*sarama.ConsumerMessage{}
	timeout := time.After(30 * time.Second)
	for {
		select {
		case m := <-partition.Messages():
			read = append(read, m)
			if m.Offset == last {
				return read
			}
		case <-timeout:
			return read
		}
	}
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
