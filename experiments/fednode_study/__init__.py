"""The customer-service study: which messages a shop's customers write, and a model that says what they want.

It is installed with FedNode, found through the entry point group `fednode.studies`, and imported by nothing else.
"""

from fednode_study.study import CustomerService

study = CustomerService()
