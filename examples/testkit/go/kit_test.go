package orders

// A cluster of Odradek for tests: starts `odradek testkit` and calls its verbs over HTTP.

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// KafkaKit is a running cluster.
type KafkaKit struct {
	URL       string `json:"url"`
	Bootstrap string `json:"bootstrap"`
	t         *testing.T
}

// Args are the arguments of a verb by their names.
type Args map[string]any

// StartKafka starts a cluster, which ends with the test.
func StartKafka(t *testing.T, options ...string) *KafkaKit {
	t.Helper()
	program := os.Getenv("ODRADEK")
	if program == "" {
		program = "odradek"
	}
	command := exec.Command(program, append([]string{"testkit", "--until-eof"}, options...)...)
	input, err := command.StdinPipe() // closed with this process, which ends the cluster
	if err != nil {
		t.Fatal(err)
	}
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		input.Close()
		command.Wait()
	})
	line, err := bufio.NewReader(output).ReadBytes('\n')
	if err != nil {
		t.Fatalf("odradek testkit ended while it was starting: %v", err)
	}
	kit := &KafkaKit{t: t}
	if err := json.Unmarshal(line, kit); err != nil {
		t.Fatal(err)
	}
	return kit
}

// Brokers are the addresses of all brokers.
func (k *KafkaKit) Brokers() []string { return strings.Split(k.Bootstrap, ",") }

// Try calls a verb. The text is that of a failed assertion or an error, and empty otherwise.
func (k *KafkaKit) Try(verb string, args Args) (any, string) {
	k.t.Helper()
	body, err := json.Marshal(args)
	if err != nil {
		k.t.Fatal(err)
	}
	response, err := http.Post(k.URL+"/"+verb, "application/json", bytes.NewReader(body))
	if err != nil {
		k.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		k.t.Fatal(err)
	}
	var answer struct {
		Result any
		Failed string
		Error  string
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		k.t.Fatal(err)
	}
	return answer.Result, answer.Failed + answer.Error
}

// Call calls a verb, and fails the test if it fails.
func (k *KafkaKit) Call(verb string, args Args) any {
	k.t.Helper()
	result, wrong := k.Try(verb, args)
	if wrong != "" {
		k.t.Fatalf("%s: %s", verb, wrong)
	}
	return result
}
