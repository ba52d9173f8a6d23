"""Ready-made models: ``nn.init(partial(nn.models.resnet18, num_classes=10), key)``."""

from .actor_critic import ActorCritic
from .bart import BART, bart_base
from .bert import BERT, Encoded, bert_base
from .cnn import CNN
from .gpt2 import GPT2, gpt2
from .lstm_lm import LSTMLanguageModel
from .mlp import MLP
from .q_network import QNetwork
from .resnet import BasicBlock, Bottleneck, ResNet, resnet18, resnet34, resnet50
from .soft_actor_critic import SoftActorCritic
from .vae import VAE, Coded, elbo_loss
from .vgg import VGG, vgg11, vgg11_bn, vgg16, vgg16_bn
from .vit import ViT, vit_b_16

__all__ = [
    "BART",
    "BERT",
    "CNN",
    "GPT2",
    "MLP",
    "VAE",
    "VGG",
    "ActorCritic",
    "BasicBlock",
    "Bottleneck",
    "Coded",
    "Encoded",
    "LSTMLanguageModel",
    "QNetwork",
    "ResNet",
    "SoftActorCritic",
    "ViT",
    "bart_base",
    "bert_base",
    "elbo_loss",
    "gpt2",
    "resnet18",
    "resnet34",
    "resnet50",
    "vgg11",
    "vgg11_bn",
    "vgg16",
    "vgg16_bn",
    "vit_b_16",
]
