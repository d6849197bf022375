package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"os"
	"strings"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

// How round trips connect; see rounds.py.
type settings struct {
	Protocol, Mechanism, User, Password, Token, CA, Certificate string
}

var security settings

func (s *settings) load(files []string) {
	for _, file := range files {
		check(json.Unmarshal(read(file), s))
	}
}

func (s *settings) apply(c *sarama.Config) {
	if strings.HasSuffix(s.Protocol, "SSL") {
		c.Net.TLS.Enable = true
		c.Net.TLS.Config = s.tls()
	}
	if !strings.HasPrefix(s.Protocol, "SASL") {
		return
	}
	c.Net.SASL.Enable = true
	c.Net.SASL.Mechanism = sarama.SASLMechanism(s.Mechanism)
	c.Net.SASL.User, c.Net.SASL.Password = s.User, s.Password
	switch s.Mechanism {
	case sarama.SASLTypeSCRAMSHA256:
		c.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &exchange{generator: scram.SHA256} }
	case sarama.SASLTypeSCRAMSHA512:
		c.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &exchange{generator: scram.SHA512} }
	case sarama.SASLTypeOAuth:
		c.Net.SASL.TokenProvider = bearer(s.Token)
	}
}

// A bearer is the file of a token.
type bearer string

func (b bearer) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(read(string(b)))}, nil
}

func (s *settings) tls() *tls.Config {
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(read(s.CA))
	if s.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(s.Certificate, s.Certificate)
		check(err)
		config.Certificates = []tls.Certificate{pair}
	}
	return config
}

// An exchange is one log-in by SCRAM, which sarama leaves to a package of its user's choice.
type exchange struct {
	generator    scram.HashGeneratorFcn
	conversation *scram.ClientConversation
}

func (e *exchange) Begin(user, password, authorization string) error {
	client, err := e.generator.NewClient(user, password, authorization)
	if err == nil {
		e.conversation = client.NewConversation()
	}
	return err
}

func (e *exchange) Step(challenge string) (string, error) { return e.conversation.Step(challenge) }

func (e *exchange) Done() bool { return e.conversation.Done() }

func read(file string) []byte {
	data, err := os.ReadFile(file)
	check(err)
	return data
}
