package main

import (
	"strconv"

	"github.com/IBM/sarama"
)

// A round of a client of former years; see old/rounds.py.
type oldRound struct {
	round
	Group string `json:"group"`
	Total int    `json:"total"`
	First int    `json:"first"`
}

type oldReport struct {
	report
	Committed map[string]int64 `json:"committed"`
}

// What is written, committed and read with the protocol of one version of Kafka.
func oldRoundTrip(bootstrap, version string, asked oldRound) oldReport {
	seen := oldReport{report{Topic: asked.Topic, Ends: map[string]int64{}}, map[string]int64{}}
	c := config(asked.round)
	parsed, err := sarama.ParseKafkaVersion(version)
	check(err)
	c.Version = parsed
	c.Consumer.Return.Errors = true
	c.Consumer.Offsets.AutoCommit.Enable = false
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	client, err := sarama.NewClient([]string{bootstrap}, c)
	check(err)
	defer client.Close()
	seen.Sent = produce(client, asked.round)
	seen.Read = consume(client, asked.Topic, committed(client, asked), asked.First)
	next := map[int32]int64{}
	for _, r := range seen.Read {
		next[r.Partition] = r.Offset + 1
	}
	manage(client, asked, func(p int32, offsets sarama.PartitionOffsetManager) {
		offsets.MarkOffset(next[p], "")
	})
	found := committed(client, asked)
	for p, offset := range found {
		seen.Committed[strconv.Itoa(int(p))] = offset
	}
	seen.Read = append(seen.Read, consume(client, asked.Topic, found, asked.Total-asked.First)...)
	for p := int32(0); p < asked.Partitions; p++ {
		end, err := client.GetOffset(asked.Topic, p, sarama.OffsetNewest)
		check(err)
		seen.Ends[strconv.Itoa(int(p))] = end
	}
	return seen
}

// The committed offsets; where there is none, OffsetOldest.
func committed(client sarama.Client, asked oldRound) map[int32]int64 {
	found := map[int32]int64{}
	manage(client, asked, func(p int32, offsets sarama.PartitionOffsetManager) {
		found[p], _ = offsets.NextOffset()
	})
	return found
}

// Does something with the group's offset of each partition, and commits what was marked.
func manage(client sarama.Client, asked oldRound, do func(int32, sarama.PartitionOffsetManager)) {
	offsets, err := sarama.NewOffsetManagerFromClient(asked.Group, client)
	check(err)
	for p := int32(0); p < asked.Partitions; p++ {
		managed, err := offsets.ManagePartition(asked.Topic, p)
		check(err)
		do(p, managed)
		defer managed.Close()
	}
	offsets.Commit()
	check(offsets.Close())
}
