package orders

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func send(t *testing.T, kafka *KafkaKit, topic string, values ...string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(kafka.Brokers()...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, value := range values {
		record := &kgo.Record{Topic: topic, Value: []byte(value)}
		if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnOrderIsWritten(t *testing.T) {
	kafka := StartKafka(t)
	kafka.Call("topic", Args{"name": "orders"})
	send(t, kafka, "orders", "paid")
	kafka.Call("assert_records", Args{"topic": "orders", "expected": []string{"paid"}})

	args := Args{"topic": "orders", "expected": []string{}, "timeout_s": 0.1}
	if _, wrong := kafka.Try("assert_records", args); !strings.Contains(wrong, "'paid'") {
		t.Fatalf("a failed assertion says what is wrong, not %q", wrong)
	}
}

func TestOrdersSurviveTheDeathOfALeader(t *testing.T) {
	kafka := StartKafka(t, "--brokers", "3")
	kafka.Call("topic", Args{"name": "safe"})
	kafka.Call("fail_next", Args{"api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER"})
	send(t, kafka, "safe", "one")
	leader := kafka.Call("leader", Args{"topic": "safe"})
	kafka.Call("kill", Args{"broker": leader})
	kafka.Call("wait_for", Args{
		"verb": "leader", "arguments": Args{"topic": "safe"}, "differs": leader,
	})
	send(t, kafka, "safe", "two")
	kafka.Call("assert_exactly_once", Args{"topic": "safe", "expected": []string{"one", "two"}})
}
