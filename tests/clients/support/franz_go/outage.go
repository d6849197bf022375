package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// How long the producer gets no acknowledgement: its own defaults, a record every 3 ms.
//
// It prints `ready` when all partitions have been written to, continues until its standard input
// ends, and then prints one line of JSON: the longest time between two acknowledgements, of each
// partition.
func outage(bootstrap, topic, partitions string) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	check(err)
	over := make(chan struct{})
	go func() {
		io.Copy(io.Discard, os.Stdin)
		close(over)
	}()
	var lock sync.Mutex
	last, longest := map[int32]time.Time{}, map[int32]float64{}
	acknowledged := func(done *kgo.Record, err error) {
		lock.Lock()
		defer lock.Unlock()
		if err != nil {
			return
		}
		if before, known := last[done.Partition]; known {
			longest[done.Partition] = max(longest[done.Partition], time.Since(before).Seconds()*1000)
		}
		last[done.Partition] = time.Now()
	}
	names := strings.Split(partitions, ",")
	isReady := false
	for {
		for _, name := range names {
			partition, err := strconv.Atoi(name)
			check(err)
			out := &kgo.Record{Topic: topic, Partition: int32(partition), Value: make([]byte, 100)}
			client.Produce(context.Background(), out, acknowledged)
		}
		lock.Lock()
		if !isReady && len(last) == len(names) {
			isReady = true
			clear(longest) // the first requests include the start
			fmt.Println("ready")
		}
		lock.Unlock()
		select {
		case <-over:
			for partition := range last { // one that never recovered
				acknowledged(&kgo.Record{Partition: partition}, nil)
			}
			check(client.Flush(context.Background()))
			check(json.NewEncoder(os.Stdout).Encode(map[string]any{"gaps_ms": longest}))
			return
		case <-time.After(3 * time.Millisecond):
		}
	}
}
