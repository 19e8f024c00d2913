"""The clients."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict

import fednode
from digits.task import TASK, load_data, make_model, train

app = fednode.flower.client_app(TASK)


@app.train()
def train_locally(message: Message, context: Context) -> Message:
    model = make_model()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    x, y = load_data(context.node_config["partition-id"], context.run_config["clients"])
    train(model, x, y, context.run_config["epochs"], context.run_config["rate"])
    metrics = MetricRecord({"num-examples": len(x)})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=message)
